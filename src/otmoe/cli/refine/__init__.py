"""``otmoe refine``: rounds by files that lead a merged model to the answer of all rows."""

from __future__ import annotations

import click

from otmoe.cli.refine.again import start_again
from otmoe.cli.refine.answer import answer
from otmoe.cli.refine.start import start
from otmoe.cli.refine.step import take_step


@click.group(
    epilog="""\b
Example:
  otmoe refine start model.json "*.moe.json" --state state.json -o round1.request.json
  otmoe refine answer round1.request.json lyon.parquet --target y --site Lyon \\
      -o lyon.round1.reply.json
  otmoe refine step state.json "*.round1.reply.json" -o refined.json

The server starts; every site answers; the server takes a step, which makes the next request. When
it says so, the model is the maximum-likelihood answer of all rows, and has standard errors.""",
)
def refine() -> None:
    """Lead a merged model to the answer of all rows, by rounds of files."""


for _command in (start, answer, take_step, start_again):
    refine.add_command(_command)
