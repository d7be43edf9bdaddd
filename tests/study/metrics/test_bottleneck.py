"""Shares of the steps' time by cause, and the bottleneck."""

from sim.records import Meters
from sim.study.metrics.bottleneck import mean_batches


def test_steps_with_prompts_are_counted_apart() -> None:
    """Four steps of 0.25 s have a prompt of 1,000 tokens beside three sequences that decode; 900 have four alone."""
    meters = Meters(busy_s=10.0, sequence_s=9 * 4 + 4.0, steps=904, prompt_tokens=4000, mixed_s=1.0, mixed_steps=4)
    meters.mixed_sequence_s, meters.mixed_decode_s = 4.0, 3.0
    (mixed, mixed_s), (plain, plain_s) = mean_batches(meters, 500.0, None)
    assert (mixed.prefill_tokens, mixed.decode_seqs, mixed.kv_tokens, mixed_s) == (1000, 3, 1500, 1.0)
    assert (plain.prefill_tokens, plain.decode_seqs, plain.kv_tokens, plain_s) == (0, 4, 2000, 9.0)


def test_prompts_alone_have_no_answers_beside_them() -> None:
    meters = Meters(busy_s=1.0, sequence_s=2.0, steps=2, prompt_tokens=2000, recomputed_tokens=600, mixed_s=1.0)
    meters.mixed_sequence_s, meters.mixed_steps = 2.0, 2
    ((batch, busy_s),) = mean_batches(meters, 500.0, None)
    assert (batch.prefill_tokens, batch.decode_seqs, busy_s) == (1300, 0, 1.0)
