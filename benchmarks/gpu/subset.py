"""One test of each kernel, by plain Python: no pytest is needed, and any tool can run it.

`python -m benchmarks.gpu.subset` prints a line for each and ends with 1 if one failed. Where they
run is what DSPARK_KERNEL_DEVICE says.
"""

from __future__ import annotations

import sys
import traceback
from importlib import import_module
from typing import Any

from benchmarks.gpu.bed import BUILD
from benchmarks.gpu.no_pytest import stand_in_for_pytest
from dspark.kernels.host.simulator import IN_ORDER

TESTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("test_norm", "test_rms_norm", {}),
    ("test_norm", "test_add_rms_norm", {}),
    ("test_rows", "test_an_id_that_is_not_there_is_seen", {}),
    ("test_rows", "test_silu_mul_shares_the_work_between_blocks", {}),
    *(
        ("test_rope", "test_queries_and_keys_are_turned_and_values_kept", {"size": d, "grid_y": 2})
        for d in (64, 80, 96, 128)
    ),
    *(
        ("test_attention", "test_any_order_of_threads_and_blocks", {"size": d})
        for d in (64, 80, 96, 128)
    ),
    *(("test_gemm", "test_gemm_f32", {"kind": kind, "rows": 11}) for kind in ("bf16", "fp8")),
    *(
        ("test_gemm", name, {"kind": kind})
        for kind in ("bf16", "fp8")
        for name in (
            *("test_gemm", "test_gemm_panels", "test_gemm_bias", "test_gemm_silu_mul"),
            "test_the_best_of_a_product_is_that_of_its_logits",
        )
    ),
    *(("test_gemm", "test_gemm_add", {"kind": kind, "in_place": True}) for kind in ("bf16", "fp8")),
    ("test_markov", "test_a_vanilla_walk", {"requests": 5}),
    ("test_markov", "test_a_vanilla_walk", {"requests": 11}),
    ("test_markov", "test_a_gated_walk", {}),
    ("test_markov", "test_a_recurrent_walk", {}),
    ("test_confidence", "test_the_logits", {"rank": 136}),
    ("test_confidence", "test_the_cut_is_the_schedules", {}),
    ("test_confidence", "test_rows_are_the_drafts_that_are_there", {}),
    ("test_plan", "test_rows_see_what_the_runtime_says", {"window": 9, "causal": True}),
    ("test_plan", "test_a_block_is_the_newest_token_and_masks", {"width": 5, "grid": 2}),
    ("test_sampling", "test_a_temperature", {}),
    ("test_sampling", "test_draws_are_the_runtimes", {}),
    ("test_sampling", "test_what_was_put_out_is_counted", {}),
    ("test_round", "test_rows_stand_behind_what_is_committed", {}),
    ("test_round", "test_accept_greedy_is_the_runtimes", {}),
    ("test_round", "test_commit_cuts_back_by_row", {}),
    ("test_accept_sampled", "test_accept_sampled_is_the_runtimes", {}),
)
"""Module, test and its arguments besides the bench; together they launch every kernel."""


def main() -> int:
    """Prints what became of each test; 1 if one failed."""
    stand_in_for_pytest()
    from tests.support.kernel_bench import Bench
    from tests.support.kernel_device import NoReport

    failed = 0
    for module, name, arguments in TESTS:
        shown = f"{module}::{name}{arguments or ''}"
        test = getattr(import_module(f"tests.kernels.{module}"), name)
        try:
            test(bench=Bench(BUILD / "kernels-host", IN_ORDER), **arguments)
        except NoReport as reason:
            print(f"ok {shown}, as far as it goes: it {reason}", flush=True)  # noqa: T201
        except Exception:  # noqa: BLE001 - whatever is wrong, the others are worth knowing
            failed += 1
            print(f"FAILED {shown}\n{traceback.format_exc()}", flush=True)  # noqa: T201
        else:
            print(f"ok {shown}", flush=True)  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
