"""Findings about sites, shards and results: the sentences of reports and screening."""

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
    EXTRAPOLATES = (
        "where its own covariates lie it predicts as the others do ({own:.2g} nats per row from "
        "them), and elsewhere {nats:.2g} nats from them, where {usual:.2g} is usual: it need not "
        "be wrong, but says little about the other sites' rows"
    )
    LESS_LIKELY_SITE = "its mean log-likelihood per row is {nats:.2g} nats below the median"
    COSTLY = (
        "its predictions are {nats:.2g} nats per row from those of the others; few rows may "
        "explain that, but weight times disagreement is {cost:.2g} nats per row"
    )
    NOT_COMPARABLE = (
        "it contributes at too few of the other sites' points to be compared with them, so it can "
        "be neither flagged nor cleared"
    )
    UNLIKE_ITS_MODEL = (
        "its log-likelihood is {claimed:.3g} per row, but its own model implies {expected:.3g}"
    )
    UNLIKE_GRAMS = (
        "its Grams are {times:.3g} times what its own model implies for its rows, relative to the "
        "other sites"
    )
    COVARIATES_FAR = (
        "its covariates are {distance:.3g} times as far from the centre as those of the others "
        "({feature})"
    )
    MANY_EXPERTS = "it has {experts} experts, where {usual} are usual"
    STANDS_OUT = "{reasons}"
    BAD_SHARD = (
        "its mean log-likelihood per row is {deviations:.0f} deviations below the median, even "
        "after a refit with more starts"
    )
    EXCLUDED_BY_HAND = "it was excluded by hand (--exclude)"
    UNREADABLE_FILE = "it cannot be read: {why}"
    NOT_FITTED = "it could not be fitted: {why}"
    NODE_FAILED = "the node failed: {why}"
    NODE_SILENT = "failed, and does not say why"
    NODES_ABSENT = "{found} of {wanted} connected within {seconds:g} s; start the others"
    NODE_NAME_TWICE = "another node also calls itself {site}"
    NODE_GONE = "is no longer connected"

    # -- why a reply cannot be right
    TOO_INFORMED = (
        "its information about {parameter} is {times:.3g} times what {rows:.10g} rows can provide"
    )
    TOO_STEEP = (
        "its score in {parameter} is {times:.3g} times what its log-likelihood and features allow"
    )
    TOO_LIKELY = "its log-likelihood of {value:.6g} is above what {rows:.10g} rows can reach"
    MORE_INFORMED = (
        "its information about {parameter} is, per row, {times:.3g} times what the other sites' "
        "replies lead one to expect"
    )
    STEEPER = (
        "its score in {parameter} promises {nats:.3g} nats per row, more than any step can gain"
    )
    FAR_FEATURES = (
        "its values of {feature} are {deviations:.3g} deviations from those of the median site"
    )
    LESS_LIKELY_REPLY = "its rows are {nats:.3g} nats per row less likely than the median site's"
    LIKELIHOOD_CONTRADICTS = (
        "its log-likelihood has changed by {change:.4g} since its last reply, where its scores "
        "predict {promised:.4g}"
    )
    SCORE_CONTRADICTS = (
        "its score has changed since its last reply in a way that its information does not predict"
    )

    # -- why a task failed
    WORKER_DIED = "its worker died each time: killed, or out of memory"
    NOTHING_ENDED = "no fit finished within {seconds:g} s"
    TASK_ERROR = "{why}"

    # -- how sites differ
    SPREAD_SCALE = (
        "Deviations of blocks refer to standardised features, and those of experts' coefficients "
        "also to standard deviations of the expert; deviations of single coefficients are in "
        "their own units. Intercepts are at the average of the features."
    )
    NEW_SITE_INTERVAL = "new: {level:.0%} prediction interval for one more site."
    MEAN_IS_COMMON = (
        "mean: the common model, from which the mean over sites differs by no more than its error."
    )
    REJECTED_WITHOUT_SPREAD = (
        "In {blocks}, Q rejects agreement although tau is 0: the differences are not those of a "
        "random spread over all sites. Often a few small sites drive Q."
    )

    SITES_NOT_ALIKE = (
        "The sites' models differ by more than chance explains: {i2:.0%} of the variation between "
        "them is not noise. A personal model for each may serve them better than a common one."
    )
    SITES_ALIKE = "The sites' models differ by no more than chance explains (p = {p:.2g})."

    # -- the report
    MERGING_ENDED = "Merging finished: {status}."
    MERGING_STOPPED = "Merging did not converge: {status}."
    ROUNDS_STOPPED = "The refine rounds did not reach the maximum: {status}."
    ROUNDS_MISSED = (
        "{names} did not reply in every refine round; those rounds do not include their rows."
    )
    SITES_STAND_OUT = "{count} from the others, but took part: {names}."
    NO_SITE_STANDS_OUT = "No site stands out by its predictions or its log-likelihood."
    NOT_COMPARED = (
        "The sites' predictions were not compared: that needs at least three sites, and is not "
        "done for shards of one data set."
    )
    OWN_MODELS_BETTER = (
        "Sites expected to be served better by their own models than by the one merged in one "
        "round, by more than chance explains: {names}. Keep their own models as well."
    )
    NO_OWN_MODEL_BETTER = (
        "No site's own model is expected to serve it better than the merged one by more than "
        "chance explains; the merged model loses {lost:.2g} nats per row on average."
    )
    LEFT_OUT = "Left out: {names}. The table of sites says why."
    FITS_STOPPED = "Local fits that did not converge: {names}."
    FITS_CONVERGED = "Every local fit converged."
    PARTLY_COVERED = (
        "A feature never varied at some sites, which do not contribute where it takes other "
        "values: {names}."
    )
    ONE_SITE_DOMINATES = "{name} has {share:.0%} of the weight: the result is mostly its own."
    SMALL_EXPERTS = "With less than {share:.2g} of the mass: {experts}."
    EXPERT_OF_ONE_SITE = "{name} contributes more than {share:.0%} of the mass of {experts}."
    NO_INTERVALS = "The coefficients have no intervals; the reason is given below."
    INTERVALS = "The coefficients have intervals: the model maximises the likelihood of all rows."
    INTERVALS_DOUBTFUL = "Intervals: {warning}"
    MODEL_ALONE = (
        "This file holds only a model: how it was merged (sites, flows, intervals) is not known. "
        "Files written by otmoe aggregate, otmoe run and Aggregation.save record it, as do the "
        "models that otmoe refine makes from them."
    )
    NOT_MERGED = (
        "An ensemble keeps the experts of every site, so it has no merged coefficients or gate to "
        "show."
    )
    FIT_UNKNOWN = "how the model was fitted is not known."

    # -- why a site's policy refuses a message
    POLICY_ROWS = (
        "rule rows: it rests on {figure:g} {what}, and the policy requires at least {limit:g}; "
        "wait for more, or join another site."
    )
    POLICY_UNSEEN = (
        "the rules {rules} concern the rows, which a message does not show: the statement written "
        "by `otmoe fit --statement` has their figures."
    )
    POLICY_UNSEEN_REPLY = (
        "the rules {rules} concern the rows, which a reply does not show: `otmoe refine answer` "
        "prints their figures at the site."
    )
    POLICY_PARAMETERS = (
        "rule parameters: {where} is {figure:.2f} parameters for each of the {what}, and the "
        "policy allows at most {limit:g}; use fewer experts or fewer features."
    )
    POLICY_PARAMETERS_WARN = (
        "rule parameters: {where} is {figure:.2f} parameters for each of the {what}, more than "
        "{limit:g}; consider fewer experts or fewer features."
    )
    POLICY_EXPERT_ROWS = (
        "rule expert_rows: {where} rests on {figure:.1f} {what}, and the policy requires at least "
        "{limit:g}; use fewer experts or fewer features."
    )
    POLICY_CELLS = (
        "rule cells: the number of {what} behind {where} is {figure:.2g}, and the policy requires "
        "none or at least {limit:g}; merge this level with another, leave the column out, use "
        "fewer experts or, in a survey, hide its count."
    )
    POLICY_LEVERAGE = (
        "rule leverage: one of the {what} accounts for {figure:.3f} of what {where} predicts for "
        "it, and the policy allows at most {limit:g}; leave out a feature that only this one has, "
        "or merge rare levels and clip extreme values."
    )
    POLICY_CERTAINTY = (
        "rule certainty: given x, the model determines {figure:.4f} of y, and the policy allows "
        "at most {limit:g}; use fewer experts or fewer features."
    )
    POLICY_SKETCH = (
        "rule sketch: the smallest component of the sketch rests on {figure:.1f} rows, and the "
        "policy requires at least {limit:g}; send no sketch, or one with fewer components."
    )
    POLICY_SHARE = (
        "rule share: {figure:g} rows of x would leave unchanged, and the policy allows {limit:g}; "
        "send a sketch instead."
    )
    POLICY_NAMES = (
        "rule names: the message would name {where}, which {figure:g} rows have, and the policy "
        "requires at least {limit:g} unless the coordinator's file of features has it; use that "
        "file, or merge the level with another."
    )
    POLICY_COLUMNS = "rule columns: the policy does not allow {where} to be used; leave it out."

    # -- why it refuses a request, and what the server is told
    POLICY_QUESTION = (
        "rule question: {where} would be {figure:.3g}, and at most {limit:.3g} is allowed; ask the "
        "coordinator for a model like the one that was agreed on."
    )
    POLICY_SCATTER = (
        "rule scatter: {where} would be {figure:.3g}, and at most {limit:.3g} is allowed; the "
        "reply goes without the scatter."
    )
    POLICY_LEDGER = (
        "rule ledger: it would be number {figure:g} of the {where}, and the policy allows "
        "{limit:g}; find out why so many are requested."
    )
    POLICY_LEDGER_ROWS = (
        "rule ledger: the rows differ from those of an earlier answer by {figure:g}, and two "
        "answers about rows that differ by fewer than {limit:g} reveal these rows; use the same "
        "rows as before, wait for more, or overwrite a message that was not sent (--force)."
    )
    NODE_TOLD = "{code}{about}; see the site's log for details."
