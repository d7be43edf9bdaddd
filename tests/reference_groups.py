"""Groups of KV caches out of one pool, one step at a time and one block at a time."""

from reference_engine import PhysicalBlock
from reference_queued import InFlight, QueuedReference


class GroupsReference(QueuedReference):
    """`blocks` of a request are those of all groups in a row; None stands for a block that was given back."""

    def __init__(self, *args, kv_groups, **limits):
        super().__init__(*args, **limits)
        self.groups = kv_groups
        self.tables: dict[InFlight, list[list[PhysicalBlock | None]]] = {}

    def _possible(self, request) -> bool:
        tokens = request.prompt_tokens + request.output_tokens
        return tokens <= self.max_model_len and self._most(tokens - 1, self.depth) <= self.usable

    def _most(self, tokens: int, batches: int) -> int:
        """Most blocks of all groups for *tokens*, with the tokens of *batches* batches beside a window."""
        most = 0
        for window in self.groups:
            blocks = -(-tokens // self.size)
            if window == 0:
                blocks = min(blocks, 1)
            elif window is not None:
                inside = min(window - 1 + batches * self.budget, self.max_model_len)
                blocks = min(blocks, -(-inside // self.size) + 1)
            most += blocks
        return most

    def _blocks_to_join(self, one, tokens):
        first = sum(min(-(-tokens // self.size), 1 if window == 0 else tokens) for window in self.groups)
        needed = max(self._most(one.tokens, 1), first) if self.reserve_full_isl else first
        return needed + (self.kept_free if self.running else 0)

    def _hold(self, one, tokens) -> bool:
        table = self.tables.setdefault(one, [[] for _ in self.groups])
        for window, blocks in zip(self.groups, table, strict=True):
            skipped = 0 if not window else max(0, one.computed - one.in_flight - window + 1) // self.size
            for place, block in enumerate(blocks[:skipped]):
                if block is not None:
                    block.users = 0
                    self.free.append(block)
                    blocks[place] = None
        blocks_each = -(-tokens // self.size)
        each = [min(blocks_each, 1) if window == 0 else blocks_each for window in self.groups]
        missing = sum(max(0, wanted - len(blocks)) for wanted, blocks in zip(each, table, strict=True))
        enough = missing <= len(self.free)
        for wanted, blocks in zip(each, table, strict=True) if enough else []:
            blocks += [self._take() for _ in range(wanted - len(blocks))]
        one.blocks = [block for blocks in table for block in blocks if block is not None]
        return enough

    def _release(self, one) -> None:
        super()._release(one)
        self.tables.pop(one, None)
