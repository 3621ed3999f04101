"""Two sites and a server on this machine: real processes, TLS, keys, one round, one model.

Run with: python examples/flower/run_local.py [folder to keep everything in]
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from federation import HOST, Federation

from otmoe import FeatureSpec, load_model, simulate

APP = Path(__file__).parent / "app"
COLUMNS = ["age", "dose", "weight"]
SITES = {"lyon": slice(0, 3000), "nantes": slice(3000, 5000)}


def main(folder):
    data = simulate(5000, 2, len(COLUMNS), softness=0.5, random_state=0)
    frame = pd.DataFrame(data.X, columns=COLUMNS).assign(y=data.y)
    # What all agree on beforehand: how columns become features.
    FeatureSpec.of_names(COLUMNS).save(folder / "features.json")
    with Federation(folder / "federation") as federation:
        print(f"SuperLink on {HOST}:{federation.port}, with TLS; only registered nodes get in.")
        for name, rows in SITES.items():
            frame[rows].to_parquet(folder / f"{name}.parquet")
            federation.register(name)
            # Decided by the site: where its rows are, and that a sketch of x may leave.
            config = {"site": name, "data": str(folder / f"{name}.parquet"), "sketch": True}
            federation.start_node(name, config)
            print(f"SuperNode {name}, with {len(frame[rows])} rows.")
        asked = {
            "target": "y",
            "experts": 2,
            "features": str(folder / "features.json"),
            "sketch": True,
            "nodes": len(SITES),
            "output": str(folder / "out"),
        }
        print(federation.run(APP, asked))
    np.set_printoptions(precision=3, suppress=True)
    print("Coefficients of the experts, intercept first:")
    print(load_model(folder / "out" / "model.json").experts.coef)
    print("The truth:")
    print(data.truth.experts.coef)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).mkdir(parents=True)
        main(Path(sys.argv[1]).absolute())
    else:
        with TemporaryDirectory() as temporary:
            main(Path(temporary))
