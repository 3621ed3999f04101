"""How sites differ, from their replies to the last refine request (maths 18)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from otmoe.documents.model_file import ModelFile
from otmoe.documents.reply import RefineReply
from otmoe.documents.state import RefineState
from otmoe.federation.rounds import request_of
from otmoe.inference.between import Between, between_sites
from otmoe.text.errors import InvalidInput, MessageError
from otmoe.text.notices import listed
from otmoe.text.sentences import Error, Warn
from otmoe.text.strict_json import UNLIMITED


def differences(
    before: RefineState, after: RefineState, replies: Sequence[RefineReply]
) -> Between | None:
    """Return how sites differ, if that was asked for, when the rounds have ended.

    The replies are about the model of the last request, a thousandth of a standard error from the
    maximum; a matrix for each site need not be kept between rounds.

    Parameters
    ----------
    before : RefineState
        The state that the replies belong to.
    after : RefineState
        What :func:`otmoe.federation.rounds.step` made of both; it is done.
    replies : sequence of RefineReply
    """
    pooled, known = after.refinement.pooled, after.refinement
    if after.between is None or pooled is None:
        return None
    if known.kept is False:
        raise InvalidInput(Error.STEP_BACK_NO_SPREAD)
    asked = request_of(before)
    replies = [reply for reply in replies if reply.site not in after.dropped]
    content = [reply.content for reply in replies]
    try:
        with np.errstate(all="ignore"):  # what is not finite is refused
            found = between_sites(
                asked.model, asked.scaling, pooled, content, restrict=after.between
            )
        # replies come from elsewhere: what they add up to has to be something a file can hold
        document = ModelFile(known.model, between=found).document()
        ModelFile.from_document(document, "sites", UNLIMITED)
    except InvalidInput:  # says what to do already
        raise
    except (ValueError, MessageError) as error:
        names = listed(sorted(reply.site for reply in replies))
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise InvalidInput(Error.NO_DIFFERENCES, sites=names, reason=reason) from error
    if not known.converged:
        found = replace(found, warnings=(*found.warnings, Warn.BETWEEN_NOT_AT_MAXIMUM()))
    return found
