"""A whole table: order, independence of the number of processes."""

from pathlib import Path

from sim.benchdata import read_benchmarks
from sim.catalogue.catalog import load_catalog
from sim.fidelity.scores import validate

TABLE = """\
id,gpu,n_gpus,tp,model,precision,load,isl,osl,concurrency,rate_req_s,output_tok_s,tpot_mean_ms
one,H100-SXM,1,1,llama3.1-8b,bf16,closed_loop,500,100,1,,130,7
two,H100-SXM,2,2,llama3.1-8b,fp8,closed_loop,500,100,16,,2000,8
lost,abacus,1,1,llama3.1-8b,bf16,closed_loop,500,100,1,,130,7
open,rtx-4090,1,1,llama3.1-8b,fp8,poisson,500,100,,2,180,15
big,rtx-4090,1,1,llama3.1-70b,bf16,closed_loop,500,100,1,,1,1
"""


def test_rows_come_back_in_order_whatever_the_number_of_processes(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(TABLE)
    rows, catalog, told = read_benchmarks(path), load_catalog(), []
    alone = validate(rows, catalog, 1, lambda *counts: told.append(counts))
    assert [one.row.id for one in alone] == ["one", "two", "lost", "open", "big"]
    assert [one.prediction.status for one in alone] == ["covered", "covered", "not_covered", "covered", "infeasible"]
    assert told == [(done, 5, 0) for done in range(1, 6)]
    assert validate(rows, catalog, 2, lambda *_: None) == alone
