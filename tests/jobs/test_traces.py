"""Formats of job traces: samples written by hand after their published schemas, and what is wrong with a file."""

import os
from pathlib import Path

import pytest

from sim.jobs.traces import AlibabaJobs, CsvJobs, HeliosJobs, PhillyJobs
from sim.workload.traces import TraceError

PHILLY = """[
{"status": "Pass", "vc": "v1", "jobid": "j1", "user": "u", "submitted_time": "2017-10-07 01:10:00", "attempts": [
  {"start_time": "2017-10-07 01:12:00", "end_time": "2017-10-07 01:13:00", "detail": [{"ip": "m1", "gpus": ["gpu0"]}]},
  {"start_time": "2017-10-07 01:14:00", "end_time": "2017-10-07 02:14:00",
   "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0", "gpu1"]}]}]},
{"status": "Killed", "vc": "v1", "jobid": "j2", "user": "u", "submitted_time": "2017-10-07 01:00:00", "attempts": []},
{"status": "Pass", "vc": "v1", "jobid": "j3", "user": "u", "submitted_time": "2017-10-07 01:09:00", "attempts": [
  {"start_time": "2017-10-07 01:09:00", "end_time": null, "detail": []}]},
{"status": "Pass", "vc": "v1", "jobid": "j4", "user": "u", "submitted_time": "2017-10-07 01:09:30", "attempts": [
  {"start_time": "2017-10-07 01:10:00", "end_time": "2017-10-07 01:10:10", "detail": [{"ip": "m", "gpus": ["gpu7"]}]}]}]
"""
HELIOS = """job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
7,u,v,0,4,1,COMPLETED,2020-06-09 18:00:00,2020-06-09 18:00:00,2020-06-09 18:10:00,600,0
8,u,v,16,64,2,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0
9,u,v,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0
"""
TASKS = """a,ps,1.0,Terminated,1000.0,1600.0,600.0,29.3,,MISC
a,worker,4.0,Terminated,1010.0,1600.0,600.0,29.3,50.0,V100
b,tensorflow,1.0,Terminated,900.0,950.0,600.0,29.3,25.0,T4
c,tensorflow,1.0,Running,990.0,,600.0,29.3,100.0,T4
"""


def written(folder: Path, text: str) -> str:
    path = folder / "trace"
    path.write_text(text)
    return str(path)


def short(jobs: tuple) -> list[tuple[str, float, int, float]]:
    return [(job.name, job.arrived_s, job.gpus, job.duration_s) for job in jobs]


def test_philly(tmp_path: Path) -> None:
    trace = PhillyJobs(format="philly", path=written(tmp_path, PHILLY))
    assert short(trace.jobs()) == [("j4", 0, 1, 10), ("j1", 30, 4, 3660)]
    assert trace.reading().notes == ("2 of 4 jobs have no attempt on a GPU that ended; they are ignored",)


def test_helios(tmp_path: Path) -> None:
    trace = HeliosJobs(format="helios", path=written(tmp_path, HELIOS), rate_scale=2, checkpoint_h=1)
    assert short(trace.jobs()) == [("9", 0, 1, 36848), ("8", 13, 16, 249)]
    assert trace.jobs()[0].checkpoint_s == 3600
    assert trace.reading().notes == ("1 of 3 jobs used no GPU or no time; they are ignored",)


def test_alibaba(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    jobs.write_text("a,i1,u,Terminated,960.0,1600.0\nb,i2,u,Terminated,900.0,950.0\nc,i3,u,Running,990.0,\n")
    trace = AlibabaJobs(format="alibaba", path=written(tmp_path, TASKS), job_table=str(jobs))
    assert short(trace.jobs()) == [("b", 0, 1, 50), ("a", 60, 2, 590)]
    assert trace.reading().notes == (
        "1 of 3 jobs used no GPU or have not ended; they are ignored",
        "1 jobs request parts of a GPU and get whole GPUs",
    )


@pytest.mark.parametrize("changed", [0, 1])
def test_each_file_that_has_changed_is_read_again_whatever_its_times_say(tmp_path: Path, changed: int) -> None:
    files = [tmp_path / "tasks", tmp_path / "jobs"]
    for path, text in zip(files, (TASKS, "a,i1,u,Terminated,960.0,1600.0\n"), strict=True):
        path.write_text(text)
    trace = AlibabaJobs(format="alibaba", path=str(files[0]), job_table=str(files[1]))
    before, times = trace.jobs(), files[changed].stat()
    text = files[changed].read_text().replace("960", "970").replace("950.0,", "980.0,")
    while files[changed].stat().st_ctime_ns == times.st_ctime_ns:  # changes within one tick have the same time
        files[changed].write_text(text)
    os.utime(files[changed], ns=(times.st_atime_ns, times.st_mtime_ns))
    assert trace.jobs() != before


def test_our_own(tmp_path: Path) -> None:
    text = "job,arrival_s,gpus,duration_s,priority,deadline_s\nx,5,2,10,-1,\ny,1,1,3.5,,20\n"
    y, x = CsvJobs(format="csv", path=written(tmp_path, text)).jobs()
    assert short((y, x)) == [("y", 1, 1, 3.5), ("x", 5, 2, 10)]
    assert (x.priority, y.deadline_s) == (-1, 20)


@pytest.mark.parametrize(
    ("trace", "text", "told"),
    [
        (CsvJobs, "arrival_s,gpus,duration_s\n0,0,5\n1,2,-1\n", "2: gpus must be a number from 1 on, not '0'"),
        (CsvJobs, "arrival_s,gpus,duration_s\n0,1,5\n1,2,-1\n", "3: duration_s must be a number above 0, not '-1'"),
        (CsvJobs, "arrival_s,gpus\n0,1\n", "1: the first line must name the columns duration_s"),
        (CsvJobs, "arrival_s,gpus,duration_s,gpu\n0,1,5,2\n", "1: unknown column 'gpu'"),
        (CsvJobs, "arrival_s,gpus,duration_s\n", "holds no jobs"),
        (HeliosJobs, HELIOS.replace("2020-06-09 18:41:01,", "9 June,", 1), "4: submit_time must look like 2020-06-09"),
        (PhillyJobs, "[{", "is not JSON"),
        (PhillyJobs, "{}", "must be a JSON list of jobs"),
        (AlibabaJobs, "a,b\n", "1: 2 fields in place of 10"),
    ],
)
def test_what_is_wrong_has_its_line(tmp_path: Path, trace: type, text: str, told: str) -> None:
    kinds = {CsvJobs: "csv", HeliosJobs: "helios", PhillyJobs: "philly", AlibabaJobs: "alibaba"}
    with pytest.raises(TraceError) as error:
        trace(format=kinds[trace], path=written(tmp_path, text)).jobs()
    assert told in str(error.value)
