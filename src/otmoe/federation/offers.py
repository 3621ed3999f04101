"""What a site offers, and what may leave it, whatever a server asks for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from otmoe.federation.policy.border import Border
from otmoe.federation.policy.rules import in_force
from otmoe.text.errors import InvalidInput
from otmoe.text.records import Name, Record, Site, Whole, typed
from otmoe.text.sentences import Error

Count = Annotated[Whole, Field(ge=0)]


class Offer(Record):
    """What a site offers, and what may leave it, whatever the server asks for.

    Attributes
    ----------
    site : str
        Its name.
    data : str
        Its rows: a file, a folder or a pattern.
    sketch, grams : bool
        Whether these parts may leave.
    share : int
        How many rows of x may leave.
    refine : bool
        Whether the site answers rounds (sums over its rows, repeatedly) or sends a second message.
    sandwich : bool
        Whether the scatter of the rows' scores may be in these answers.
    groups : str, optional
        Column with the label of the group of each row: the scatter of the groups' scores may be.
    secure : str, optional
        File of the private key, created if it does not exist: rounds are then answered only for
        secure sums.
    new_roster : bool
        Whether it also answers for a different roster than before: the difference reveals single
        sites.
    explain : bool
        Whether the server gets the code of an error and the columns concerned; it never gets
        values.
    policy : str, optional
        File with the site's policy; by default the one that OTMOE_POLICY names, or policy.json in
        the folder where the node runs, or what is built in.
    ledger : str, optional
        File in which the site records what it has answered, by default beside the data.
    """

    site: Site
    data: str
    sketch: bool = False
    grams: bool = False
    share: Count = 0
    refine: bool = False
    sandwich: bool = False
    groups: Name | None = None
    secure: Name | None = None
    new_roster: bool = False
    explain: bool = True
    policy: str | None = None
    ledger: str | None = None

    @property
    def border(self) -> Border:
        """What may leave."""
        policy, _ = in_force(self.policy)
        if policy.share is not None:  # the node config is the site's word as well
            policy = policy.model_copy(update={"share": max(policy.share, self.share)})
        return Border(policy, None if self.ledger is None else Path(self.ledger))

    @classmethod
    def from_config(cls, config: Mapping[str, Any], source: str) -> Offer:
        """Read what is ours of a configuration; a hyphen may stand for an underscore."""
        given = {key.replace("-", "_"): value for key, value in config.items()}
        if "rows_per_parameter" in given:  # who relies on it would be left without protection
            raise InvalidInput(Error.ROWS_PER_PARAMETER, where=source)
        return typed(cls, {k: v for k, v in given.items() if k in cls.model_fields}, source)
