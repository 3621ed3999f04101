"""How a fit or a merging ended: the sentences of all statuses."""

from enum import unique

from otmoe.text.notices import Sentence


@unique
class Status(Sentence):
    """Statuses by code; each completes a sentence about a fit or a merging."""

    # -- a fit
    CONVERGED = "converged at iteration {iterations}"
    CONVERGED_NEAR = (
        "converged at iteration {iterations}, {distance:.1g} standard errors from the maximum"
    )
    CONVERGED_FOUND = (
        "converged at iteration {iterations}, {distance:.1g} standard errors from the maximum; "
        "{agreed} of {searches} searches ended there{gap}"
    )
    STARTED = "started from a given model, without a search, and {status}"
    OUT_OF_PASSES = "stopped after {passes} passes over the rows, before convergence"
    STUCK = "stopped at iteration {iterations}, where no step increases the likelihood"

    # -- refine rounds
    NO_ROUNDS = "no round has been answered yet"
    INDEFINITE = "after {rounds} the information is not positive definite yet"
    NOT_AT_MAXIMUM = "after {rounds} the last step was {distance:.1g} standard errors long"
    STEP_TAKEN_BACK = (
        "after {rounds} the last step was undone, since it lowered the likelihood: this is the "
        "model before that step"
    )
    AT_MAXIMUM = (
        "after {rounds} the last step was {distance:.1g} standard errors long: this is the "
        "maximum-likelihood estimate for all rows{but}"
    )

    AT_ROUNDED_MAXIMUM = (
        "after {rounds} the last step was {distance:.1g} standard errors long: this is the "
        "maximum-likelihood estimate for all rows{but}, to about {unsure:.1g} standard errors, "
        "since sites round their replies"
    )

    # -- merging
    IN_GROUPS = "merged {count:,} sites in {groups:,} groups, whose merging {status}"
    REDUCED = (
        "converged at iteration {iterations}, at a divergence of {cost:.4g} nats between the "
        "sites' experts and the merged ones; {same} of {starts} starts led there"
    )
    REDUCTION_STOPPED = (
        "stopped before convergence at iteration {iterations}, at a divergence of {cost:.4g} nats "
        "between the sites' experts and the merged ones; {same} of {starts} starts led there"
    )
    DENSITIES_MERGED = (
        "converged at iteration {iterations}, at an expected loss of {lost:.3g} nats per row on "
        "the points used for merging"
    )
    DENSITIES_STOPPED = (
        "stopped before convergence at iteration {iterations}, at an expected loss of {lost:.3g} "
        "nats per row on the points used for merging"
    )
    MEDIAN = "medians of the parameters of {models} models, matched to that of {site}"
    TRIMMED = "trimmed means of the parameters of {models} models, matched to that of {site}"
    KRUM = (
        "averaged the {kept} of {total} models that are closest to their neighbours, matched to "
        "that of {site}"
    )
    GEOMETRIC_MEDIAN = (
        "geometric median of the densities of {models} models, started from that of {site}, at "
        "iteration {iterations}"
    )
    GEOMETRIC_MEDIAN_STOPPED = (
        "stopped before convergence at the geometric median of the densities of {models} models, "
        "started from that of {site}, at iteration {iterations}"
    )
    DENSITIES_GIVEN_UP = (
        "kept the reduction, since merging densities made experts narrower than any site has; "
        "it {start}"
    )
    ONE_EXPERT = (
        "one expert for all sites, at an expected loss of {lost:.3g} nats per row on the points "
        "used for merging"
    )
    CHOSEN = "chose {method}, which {status}"
    GREEDILY_MERGED = "merged {sources} experts into {experts}, at a divergence of {cost:.4g} nats"
    MIDDLE = "site {site!r} is in the middle: moving the others there costs {cost:.4g} nats"
    AVERAGED = "averaged {models} models, expert by expert"
    ALIGNED = "averaged {models} models, their experts matched to those of {site!r}"
    KEPT_ALL = "kept all {experts} experts of {models} sites side by side"
    POOLED_BY_GRAMS = (
        "pooled the sites' experts using their Gram matrices; {gate}; experts were matched by the "
        "reduction, which {reduction}"
    )
    GATE_UNEQUAL = "the gate is the reduction's, since numbers of experts differ"
    GATE_SOFT = "the gate is the reduction's, since gates are soft"
    GATE_AVERAGED = "gates were averaged, since they are sharp"
    REFINED = "{merging}; {rounds}"
    MAXIMISED = "{merging}; EM over all rows {fit}"
    REFINED_BY_OTHERS = "{status}; {words}: {names}"
