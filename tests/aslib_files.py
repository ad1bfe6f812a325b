"""Small scenarios of the algorithm selection library, in the form in which it is published."""

from collections.abc import Sequence
from pathlib import Path

RUNS_HEADER = """@RELATION ALGORITHM_RUNS_{name}

@ATTRIBUTE instance_id STRING
@ATTRIBUTE repetition NUMERIC
@ATTRIBUTE algorithm STRING
@ATTRIBUTE runtime NUMERIC
@ATTRIBUTE runstatus {{ok, timeout, memout, not_applicable, crash, other}}

@DATA
"""
FEATURES_HEADER = """@RELATION FEATURE_VALUES_{name}

@ATTRIBUTE instance_id STRING
@ATTRIBUTE repetition NUMERIC
{attributes}

@DATA
"""
DESCRIPTION = """scenario_id: {name}
performance_measures:
    - runtime
maximize:
    - false
performance_type:
    - runtime
algorithm_cutoff_time: {cutoff}
algorithm_cutoff_memory: "?"
algorithms_deterministic:
    - {algorithms}
features_deterministic:
    - {features}
number_of_feature_steps: 1
feature_steps:
    all:
      provides:
        - {features}
"""


def write_aslib_scenario(
    folder: Path,
    runs: Sequence[str],
    features: Sequence[str] = (),
    names: Sequence[str] = (),
    cutoff: str = "5000",
) -> Path:
    """Write a scenario from the rows of its data; returns its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    name = folder.name
    write = {"algorithm_runs.arff": RUNS_HEADER.format(name=name) + "\n".join(runs) + "\n"}
    attributes = "\n".join(f"@ATTRIBUTE {one} NUMERIC" for one in names)
    header = FEATURES_HEADER.format(name=name, attributes=attributes)
    write["feature_values.arff"] = header + "\n".join(features) + "\n"
    solvers = sorted({row.split(",")[2] for row in runs})
    texts = {"algorithms": "\n    - ".join(solvers), "features": "\n    - ".join(names)}
    write["description.txt"] = DESCRIPTION.format(name=name, cutoff=cutoff, **texts)
    for file, text in write.items():
        (folder / file).write_text(text, encoding="utf-8")
    return folder


def write_small_scenario(folder: Path) -> Path:
    """Three instances and three algorithms; one run is missing, and one is ok after the cut-off."""
    runs = [
        "cnf/a.cnf,1,minisat,0.5,ok",
        "cnf/a.cnf,1,glucose,5000,timeout",
        "cnf/a.cnf,1,walk,12.25,ok",
        "'cnf/b, 2.cnf',1,minisat,5000.0,ok",
        "'cnf/b, 2.cnf',1,glucose,5000.5,ok",
        "'cnf/b, 2.cnf',1,walk,?,crash",
        "cnf/c.cnf,1,minisat,100,memout",
        "cnf/c.cnf,1,glucose,1e2,ok",
    ]
    features = ["cnf/c.cnf,1,7,?", "cnf/a.cnf,1,100,0.25", "other.cnf,1,1,1"]
    return write_aslib_scenario(folder, runs, features, ["nvars", "ratio"])
