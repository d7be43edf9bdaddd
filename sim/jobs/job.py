"""A job in a queue, and what a schedule makes of it."""

from dataclasses import dataclass, field
from math import inf, nan


@dataclass(frozen=True, slots=True)
class Job:
    """What is asked of the cluster. Times in seconds from the start."""

    name: str
    arrived_s: float
    gpus: int
    """All at once, or the job does not start."""
    duration_s: float
    """Of undisturbed work on these GPUs."""
    priority: int = 0
    """Lower first, as in vLLM."""
    deadline_s: float = inf
    walltime_s: float = 0.0
    """The user's estimate, which backfilling plans with; 0: the duration itself."""
    checkpoint_s: float = inf
    """Work between saves; what was done since the last one is lost in a preemption. inf: nothing is saved."""
    restart_s: float = 0.0
    """Before work goes on after a preemption."""
    load: float = 1.0
    """How hard it works its GPUs, from 0 at idle power to 1 at the power limit."""

    @property
    def planned_s(self) -> float:
        """How long it will take, as far as a scheduler knows."""
        return self.walltime_s or self.duration_s


@dataclass(slots=True)
class Segment:
    """GPUs of one job from one start to the next stop: restart, then work that counts, then work that is lost."""

    start_s: float
    end_s: float
    restart_s: float
    lost_s: float

    @property
    def useful_s(self) -> float:
        """Of the time, work that counts."""
        return self.end_s - self.start_s - self.restart_s - self.lost_s


@dataclass(slots=True, eq=False)
class Work:
    """A job in the queue or at work."""

    job: Job
    done_s: float = 0.0
    """Work that no preemption can take away."""
    running_since_s: float = nan
    restarting_s: float = 0.0
    """Of the present run, before work goes on."""
    segments: list[Segment] = field(default_factory=list)
    finished_s: float = nan
    preemptions: int = 0
    """Times that it had to give its GPUs back to others."""

    @property
    def ends_s(self) -> float:
        """When the present run finishes the job, if nobody stops it."""
        return self.running_since_s + self.restarting_s + self.job.duration_s - self.done_s

    @property
    def planned_end_s(self) -> float:
        """When a scheduler expects the present run to finish the job."""
        left_s = self.job.planned_s - self.done_s
        return self.running_since_s + self.restarting_s + left_s

    def start(self, now_s: float) -> None:
        """Its GPUs are there."""
        self.running_since_s = now_s
        self.restarting_s = self.job.restart_s if self.segments else 0.0

    def stop(self, now_s: float) -> None:
        """Its GPUs are taken away: what was saved stays done."""
        ran_s = now_s - self.running_since_s
        restart_s = min(ran_s, self.restarting_s)
        reached_s = self.done_s + ran_s - restart_s
        every_s = self.job.checkpoint_s
        saved_s = max(self.done_s, reached_s // every_s * every_s if every_s < inf else 0.0)
        self.segments.append(Segment(self.running_since_s, now_s, restart_s, reached_s - saved_s))
        self.done_s, self.running_since_s = saved_s, nan

    def break_off(self, now_s: float) -> None:
        """The horizon is there: nobody takes its GPUs, so what it has done counts, saved or not."""
        ran_s = now_s - self.running_since_s
        restart_s = min(ran_s, self.restarting_s)
        self.segments.append(Segment(self.running_since_s, now_s, restart_s, 0.0))
        self.done_s, self.running_since_s = self.done_s + ran_s - restart_s, nan

    def finish(self, now_s: float) -> None:
        """All of it is done."""
        self.segments.append(Segment(self.running_since_s, now_s, self.restarting_s, 0.0))
        self.done_s, self.finished_s = self.job.duration_s, now_s

    @property
    def started_s(self) -> float:
        """When it first had its GPUs; nan if never."""
        return self.segments[0].start_s if self.segments else self.running_since_s
