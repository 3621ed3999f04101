"""``otmoe refine``: rounds by files that lead a merged model to the answer of all rows."""

from __future__ import annotations

import click

from otmoe.cli.refine.again import start_again
from otmoe.cli.refine.answer import answer
from otmoe.cli.refine.start import start
from otmoe.cli.refine.step import take_step


@click.group(
    short_help="Refine a merged model to the fit of all rows, in rounds.",
    epilog="""\b
Example:
  otmoe refine start model.json "*.moe.json" --state state.json -o round1.request.json
  otmoe refine answer round1.request.json --fit lyon.moe.json -o lyon.round1.reply.json
  otmoe refine step state.json "*.round1.reply.json" -o refined.json

The server starts; every site answers; the server takes a step, which writes the next request. It
says when the model is the maximum-likelihood estimate for all rows, with standard errors.""",
)
def refine() -> None:
    """Refine a merged model to the maximum-likelihood fit of all rows, in rounds of files."""


for _command in (start, answer, take_step, start_again):
    refine.add_command(_command)
