"""What was found about sites, shards and results: the sentences of reports and screenings."""

from enum import unique

from otmoe.text.notices import Sentence


@unique
class Finding(Sentence):
    """Findings by code."""

    # -- why a site stands out, or a shard is left out
    PREDICTS_OTHERWISE = (
        "its predictions are {nats:.2g} nats per row from those of the others, where {usual:.2g} "
        "is usual"
    )
    LESS_LIKELY_SITE = "its mean log-likelihood per row is {nats:.2g} nats below the median"
    COSTLY = (
        "its predictions are {nats:.2g} nats per row from those of the others; few rows may "
        "explain that, but weight times disagreement is {cost:.2g} nats per row"
    )
    NOT_COMPARABLE = (
        "it has a say at too few points of the other sites to be compared with them, so that "
        "nothing is known against it or for it"
    )
    UNLIKE_ITS_MODEL = (
        "its log-likelihood is {claimed:.3g} per row where its own model leads one to expect "
        "{expected:.3g}"
    )
    COVARIATES_FAR = (
        "its covariates are {distance:.3g} times as far from the centre as those of the others "
        "({feature})"
    )
    MANY_EXPERTS = "it has {experts} experts, where {usual} are usual"
    STANDS_OUT = "{reasons}"
    BAD_SHARD = (
        "its mean log-likelihood per row is {deviations:.0f} deviations below the median, also "
        "after a fit with more starts"
    )
    EXCLUDED_BY_HAND = "it was excluded by hand (--exclude)"
    UNREADABLE_FILE = "it cannot be read: {why}"
    NOT_FITTED = "it could not be fitted: {why}"
    NODE_FAILED = "the node failed: {why}"
    NODE_SILENT = "failed, and does not say why"
    NODES_ABSENT = "{found} of {wanted} connected within {seconds:g} s; start the others"
    NODE_NAME_TWICE = "another node too calls itself {site}"
    NODE_GONE = "is not connected any more"

    # -- why a task failed
    WORKER_DIED = "its worker died each time: killed, or out of memory"
    NOTHING_ENDED = "no fit ended within {seconds:g} s"
    TASK_ERROR = "{why}"

    # -- how sites differ
    SPREAD_SCALE = (
        "Deviations of blocks are on standardised features, those of experts' coefficients in "
        "standard deviations of the expert; those of single coefficients in their own units. "
        "Intercepts are those at the average of the features."
    )
    NEW_SITE_INTERVAL = "new: {level:.0%} prediction interval for one more site."

    SITES_NOT_ALIKE = (
        "The sites' models differ by more than chance explains: {i2:.0%} of the variation between "
        "them is not noise. A personal model of each may serve them better than a common one."
    )
    SITES_ALIKE = "The sites' models differ by no more than chance explains (p = {p:.2g})."

    # -- the report
    MERGING_ENDED = "The merging ended well: {status}."
    MERGING_STOPPED = "The merging did not converge: {status}."
    ROUNDS_MISSED = "{names} did not answer every refine round, which went on without their rows."
    SITES_STAND_OUT = "{count} from the others, and took part all the same: {names}."
    NO_SITE_STANDS_OUT = "No site stands out by what it predicts or by its log-likelihood."
    NOT_COMPARED = (
        "The predictions of the sites were not compared with each other: with fewer than three of "
        "them, or for shards of one data set, that is not done."
    )
    OWN_MODELS_BETTER = (
        "Sites that are expected to be served better by their own models than by the one merged "
        "in one round, and by more than chance explains: {names}. Keep their own models beside it."
    )
    NO_OWN_MODEL_BETTER = (
        "No site's own model is expected to serve it better than the merged one by more than "
        "chance explains; on average that loses {lost:.2g} nats per row."
    )
    LEFT_OUT = "Left out: {names}. The table of sites says why."
    FITS_STOPPED = "Local fits that did not converge: {names}."
    FITS_CONVERGED = "Every local fit converged."
    PARTLY_COVERED = (
        "A feature never varied at some sites, which do not contribute where it differs: {names}."
    )
    ONE_SITE_DOMINATES = "{name} has {share:.0%} of the weight: the result is mostly its own."
    SMALL_EXPERTS = "With less than {share:.2g} of the mass: {experts}."
    EXPERT_OF_ONE_SITE = "{name} brings more than {share:.0%} of the mass of {experts}."
    NO_INTERVALS = "The coefficients have no intervals; below it is said why."
    INTERVALS = "The coefficients have intervals: the model is at the maximum of all rows."
    INTERVALS_DOUBTFUL = "Intervals: {warning}"
    MODEL_ALONE = (
        "This file holds a model and nothing about how it was merged: sites, flows and intervals "
        "are not known. Files written by otmoe aggregate, otmoe run and Aggregation.save have "
        "them, and what otmoe refine makes of these."
    )
    NOT_MERGED = (
        "An ensemble keeps the experts of every site, so that there is no merged model to show "
        "coefficients or a gate of."
    )
    FIT_UNKNOWN = "how the model was fitted is not known."
