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
        "it contributes at too few points of the other sites to be compared with them, so that "
        "nothing is known against it or for it"
    )
    UNLIKE_ITS_MODEL = (
        "its log-likelihood is {claimed:.3g} per row where its own model leads one to expect "
        "{expected:.3g}"
    )
    UNLIKE_GRAMS = (
        "its Grams are {times:.3g} times what its own model expects of its rows, compared with the "
        "other sites"
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

    # -- why a reply cannot be right
    TOO_INFORMED = (
        "its information about {parameter} is {times:.3g} times what {rows:.10g} rows can hold"
    )
    TOO_STEEP = (
        "its score in {parameter} is {times:.3g} times what its log-likelihood and features allow"
    )
    TOO_LIKELY = "its log-likelihood of {value:.6g} is above what {rows:.10g} rows can reach"
    MORE_INFORMED = (
        "its information about {parameter} is, per row, {times:.3g} times that of the median site"
    )
    STEEPER = "its score in {parameter} promises {nats:.3g} nats per row, which no step can bring"
    FAR_FEATURES = (
        "its values of {feature} are {deviations:.3g} deviations from those of the median site"
    )
    LESS_LIKELY_REPLY = "its rows are {nats:.3g} nats per row less likely than the median site's"
    LIKELIHOOD_CONTRADICTS = (
        "its log-likelihood has changed by {change:.4g} since its last reply, where its scores "
        "predict {promised:.4g}"
    )
    SCORE_CONTRADICTS = (
        "its score has changed since its last reply otherwise than its information predicts"
    )

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
    ROUNDS_STOPPED = "The refine rounds did not reach the maximum: {status}."
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

    # -- what a site's policy says against a message
    POLICY_ROWS = (
        "rule rows: it rests on {figure:g} {what}, and the policy asks for at least {limit:g}; "
        "wait for more, or join another site."
    )
    POLICY_UNSEEN = (
        "the rules {rules} are about the rows, which a message does not show: the statement that "
        "`otmoe fit --statement` writes has their figures."
    )
    POLICY_UNSEEN_REPLY = (
        "the rules {rules} are about the rows, which a reply does not show: `otmoe refine answer` "
        "prints their figures at the site."
    )
    POLICY_PARAMETERS = (
        "rule parameters: {where} are {figure:.2f} parameters for each of the {what}, and the "
        "policy allows at most {limit:g}; use fewer experts or fewer features."
    )
    POLICY_PARAMETERS_WARN = (
        "rule parameters: {where} are {figure:.2f} parameters for each of the {what}, more than "
        "{limit:g}; consider fewer experts or fewer features."
    )
    POLICY_EXPERT_ROWS = (
        "rule expert_rows: {where} rests on {figure:.1f} {what}, and the policy asks for at least "
        "{limit:g}; use fewer experts or fewer features."
    )
    POLICY_CELLS = (
        "rule cells: {figure:.2g} {what} are behind {where}, and the policy asks for none or at "
        "least {limit:g}; merge this level with another, leave the column out, use fewer experts "
        "or, in a survey, hide its count."
    )
    POLICY_LEVERAGE = (
        "rule leverage: one of the {what} has a share of {figure:.3f} in what {where} says about "
        "it, and the policy allows at most {limit:g}; leave out the feature that it alone has, or "
        "merge rare levels and cut off extreme values."
    )
    POLICY_CERTAINTY = (
        "rule certainty: the model knows {figure:.4f} of y where x is known, and the policy allows "
        "at most {limit:g}; use fewer experts or fewer features."
    )
    POLICY_SKETCH = (
        "rule sketch: the smallest component of the sketch rests on {figure:.1f} rows, and the "
        "policy asks for at least {limit:g}; send no sketch, or one of fewer components."
    )
    POLICY_SHARE = (
        "rule share: {figure:g} rows of x would leave as they are, and the policy allows "
        "{limit:g}; send a sketch in their place."
    )
    POLICY_NAMES = (
        "rule names: the message would name {where}, which {figure:g} rows have, and the policy "
        "asks for at least {limit:g} unless the coordinator's file of features has it; use that "
        "file, or merge the level with another."
    )
    POLICY_COLUMNS = "rule columns: the policy does not allow {where} to be used; leave it out."

    # -- what it says against a question, and what the server is told
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
        "{limit:g}; find out why so many are asked for."
    )
    POLICY_LEDGER_ROWS = (
        "rule ledger: the rows differ from those of an earlier answer by {figure:g}, and two "
        "answers about rows that differ by fewer than {limit:g} show these rows; use the same rows "
        "as before, wait for more, or write over a message that was not sent (--force)."
    )
    NODE_TOLD = "{code}{about}; the log of the site says more."
