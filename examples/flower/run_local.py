"""Two sites and a server on this machine: real processes, TLS, keys, one round, one model.

Run with: python examples/flower/run_local.py [folder]
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from federation import Federation

from otmoe import FeatureSpec, load_model, simulate

APP = Path(__file__).parent / "app"
COLUMNS = ["age", "dose", "weight"]
ROWS = {"lyon": slice(0, 3000), "nantes": slice(3000, 5000)}


def main(folder):
    # What the sites and the server agreed on beforehand: how columns become features.
    FeatureSpec.of_names(COLUMNS).save(folder / "features.json")
    data = simulate(5000, 2, len(COLUMNS), softness=0.5, random_state=0)
    frame = pd.DataFrame(data.X, columns=COLUMNS).assign(y=data.y)
    # The server's own rows of x, without y.
    simulate(1000, 2, len(COLUMNS), random_state=1).X
    frame[COLUMNS][::10].to_parquet(folder / "support.parquet")
    with Federation(folder / "federation") as federation:
        print(f"The SuperLink listens on 127.0.0.1:{federation.port}, with TLS.")
        for name, rows in ROWS.items():
            frame[rows].to_parquet(folder / f"{name}.parquet")
            federation.register(name)
            federation.start_node(name, {"site": name, "data": str(folder / f"{name}.parquet")})
            print(f"The SuperNode of {name} is registered and has its own {rows}.")
        print(
            federation.run(
                APP,
                {
                    "target": "y",
                    "experts": 2,
                    "features": str(folder / "features.json"),
                    "support": str(folder / "support.parquet"),
                    "output": str(folder / "out"),
                },
            )
        )
    model = load_model(folder / "out" / "model.json")
    np.set_printoptions(precision=3, suppress=True)
    print("Coefficients of the experts, intercept first; below, the truth:")
    print(model.experts.coef)
    print(data.truth.experts.coef)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]).absolute())
    else:
        with TemporaryDirectory() as temporary:
            main(Path(temporary))
