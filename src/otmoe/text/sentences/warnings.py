"""What a user should know about a result: the sentences of all warnings."""

from enum import unique

from otmoe.text.notices import Sentence


@unique
class Warn(Sentence):
    """Warnings by code."""

    # -- a fit
    RANK_DEFICIENT = (
        "the {columns} columns of the design (intercept included) span only {rank} dimensions: "
        "columns are constant or collinear, or rows are few; coefficients are those of minimum "
        "norm."
    )
    FEW_ROWS = (
        "there are {rows} rows for {parameters} parameters: use fewer experts or features, or "
        "trust predictions only."
    )
    EXPERTS_WITHOUT_ROWS = (
        "{lost} of {experts} experts have almost no rows assigned (expert {which}): use fewer "
        "experts."
    )
    EXPERT_BY_CHANCE = (
        "expert {expert} rests on {rows:.0f} rows for {coefficients} coefficients, and a few rows "
        "close to a plane are found by chance: use fewer experts."
    )
    VARIANCE_AT_FLOOR = (
        "expert {which} fits its rows exactly, so that its variance stopped at the floor "
        "({floor:g} of the variance of y): use fewer experts or more rows."
    )
    NO_OVERDISPERSION = (
        "the counts of expert {which} vary no more than Poisson variables do, so that its "
        "dispersion stopped at the floor ({floor:g}): fit the poisson family."
    )
    IDENTICAL_EXPERTS = (
        "experts {first} and {second} say the same wherever they answer: use fewer experts."
    )
    SEPARATED = (
        "a plane divides the rows of expert {expert} by class, so that only the ridge expert_alpha "
        "keeps its coefficients finite, that of {term} above all: read its predictions, not its "
        "coefficients, or use fewer experts or features."
    )
    FOUND_ONCE = (
        "{agreed} of {searches} independent searches ended in this maximum{gap}: raise n_init to "
        "be surer of it, or use fewer experts."
    )
    NOT_CONVERGED = "the fit {status}: raise max_iter or alpha, or use fewer experts."

    # -- how sites differ
    FEW_SITES = (
        "fewer than {least} sites have rows enough to say how much they differ in {blocks}: these "
        "are taken to be the same at every site."
    )

    BETWEEN_NOT_AT_MAXIMUM = (
        "the sites have replied about a model that is not at the maximum: how they differ, and the "
        "prior for one more, are rough."
    )

    # -- standard errors
    COLUMNS_UNDETERMINED = (
        "the rows do not determine the coefficients of {terms}: columns are constant or "
        "collinear, or rows are few; leave some out."
    )
    GATE_UNDETERMINED = (
        "the rows do not determine the gate of expert {expert} against expert {reference} "
        "({terms}): it separates them, so that its coefficients run off until the ridge holds "
        "them; or alpha is too large, and a smaller one will show."
    )
    EXPERT_UNDETERMINED = (
        "the rows do not determine expert {expert} ({terms}): it has too few of them, or x "
        "separates their responses."
    )
    RIDGE_MOVED = (
        "the ridge has moved {count} parameter{plural} by more than {bound} standard errors, most "
        "of all {worst} by {distance:.1f}, which the intervals do not include: fit with a smaller "
        "alpha or expert_alpha."
    )

    FEW_GROUPS = (
        "there are {groups} groups for {parameters} parameters: the covariance has not full rank, "
        "so that tests of many parameters at once mean little, and standard errors tend to be too "
        "small; use fewer experts or features."
    )
    SCATTER_MISSING = (
        "{names} sent no scatter of scores, so that standard errors are by the information: right "
        "if the model is, and if no row depends on another."
    )
    ROWS_SHARE_AN_ID = (
        "the column {column!r} looks like an identifier, and is used as a feature: rows that share "
        "a value of it may not be independent. Leave it out of the features, and give it as groups "
        "to inference."
    )

    # -- merging
    SUPPORT_SHORT = (
        "the support has {points} points for {columns} columns (intercept included): give at "
        "least {least}, better 2,000, or the merged coefficients will be unstable."
    )
    SUPPORT_UNCOVERED = (
        "{lost} of {points} support points were left out, since every site has a feature that "
        "never varied there and has another value at these points."
    )
    SITES_SILENT = (
        "the sites {names} sent neither a sketch nor rows, so that no support point comes from "
        "them."
    )
    EXPERTS_EMPTY = (
        "{empty} of {experts} experts receive no mass from any site: ask for fewer experts."
    )
    NOBODY_EXCLUDED = (
        "nobody was left out: with {models} different models or fewer, nothing can be said about "
        "which of them stands out."
    )
    NEAR_COPIES = (
        "the sites {names} sent models that agree to six digits, which rows of their own would not "
        "give: they are counted as one site where models are compared, and have the weight of all."
    )
    SITE_DOMINATES = (
        "site {name!r} claims {share:.3g} of all rows and differs from the others by more than "
        "chance explains, so that the result is mostly its own: limit it by max_weight, or use "
        "outliers='exclude'."
    )
    WEIGHT_LIMITED = (
        "the weight of {names} was limited to {most:.3g} of the total (by its rows: {share:.3g}); "
        "max_weight=1 lifts the limit."
    )
    OTHER_EXPERTS = (
        "the sites {names} have another number of experts than the {experts} asked for, so that "
        "they have no vote in {method}."
    )
    SITES_EXCLUDED = "{count} of {total} sites stand out and were left out ({reasons})."
    SITES_STAND_OUT = (
        "{count} of {total} sites stand out, and are in the aggregate all the same ({reasons}): "
        "look at them, or leave them out by outliers='exclude'."
    )

    SITES_DIFFER = (
        "{count} of {total} sites are expected to be served better by their own models than by the "
        "merged one, and by more than chance explains ({names} nats per row): one model may be the "
        "wrong question; fit personal models beside it (personal='auto', or otmoe personalise)."
    )

    # -- shards
    FEWER_SHARDS = (
        "there are rows for {shards} of {wanted} shards only: give more rows or ask for fewer "
        "shards, experts or features."
    )
    SHARD_FAILED = "shard {name}: {cause}"
    ROWS_DROPPED = "{rows:,} of {total:,} rows were dropped because a value is missing{columns}."
    SHELL_SMALL_SHARDS = (
        "the median shard has {rows:,.0f} rows for {parameters:,} parameters: fewer and larger "
        "shards, such as --cut {fewer}, lose less in the merging."
    )
    EMPTY_SHARDS = "{count:,} of {total:,} shards have no rows and were skipped, such as {name}."
    INDEX_LEFT_OUT = (
        "column {column!r} looks like the index of a data frame and is no feature; name the "
        "features to use it."
    )
    SHARD_LEFT_OUT = "{name} was left out: {why}."
    SHARDS_STOPPED = "the fits of {names} stopped before convergence: raise max_iter."
    SOME_SHARDS = "of some shards: {warning}"

    # -- how many experts
    THIN_SITES = (
        "Local fits have {ratio:.1f} rows per parameter, where {wanted} are wanted: neither rule "
        "can be trusted; try smaller numbers of experts, or join sites."
    )
    SLIGHT_BEND = (
        "The bend at {experts} experts is slight, as it is with one expert or with overlapping "
        "ones: log R_c has no clear elbow."
    )
    LARGEST_TRIED = "{experts} is the largest number tried: try more."
    OF_CANDIDATE = "K = {experts}: {warning}"
    LESS_LIKELY = (
        "its log-likelihood is below that of K = {fewer}, so that there is a better maximum: "
        "raise n_init, or refine merged models."
    )
    STOPPED = "it {status}."

    # -- refine rounds
    ROUNDS_ENDED = (
        "After {rounds} refine rounds the maximum has not been reached ({status}): use fewer "
        "experts, raise alpha, leave out sites that differ from the others{names}, or fit shards "
        "with method='em'."
    )
    STEP_TAKEN_BACK = (
        "The step of refine round {rounds}, the last, made the rows less likely and was taken "
        "back: ask for more rounds, or for refine='auto'."
    )

    REPLY_DROPPED = (
        "{site} is left out from refine round {round} on, since its reply cannot be right: {why}."
    )

    # -- the shell
    SHELL_STOPPED = "the fit {status}; try a larger --n-init, or fewer --experts."
    SHELL_FITS_KEPT = (
        "{folder} keeps the local fits that are done ({count}): the same command goes on from "
        "there."
    )
    SHELL_LEFT_OUT = "left out: {why}"
    SHELL_NO_REPLY = "no reply from {names}: this step is without it."
    SHELL_MISSED = "{names} missed the last round: the model is that of the other sites."
    SHELL_NOT_AT_MAXIMUM = (
        "the maximum has not been reached; start again from this model for more rounds."
    )
    SHELL_NO_INFERENCE = "there are no standard errors: {why}"
    SHELL_NO_SCATTER = (
        "{names} sent no scatter: unless every reply to the last round has one, standard errors "
        "will be by the information, not by the sandwich."
    )
    SHELL_SANDWICH_UNASKED = (
        "the request does not ask for the scatter of scores, so that --sandwich (or --scatter) and "
        "--groups add nothing to this reply."
    )
    SHELL_SANDWICH_ASKED = (
        "the request asks for the scatter of scores, {why}, and this reply is without it: give "
        "--scatter, or --groups COLUMN, if the site agrees to send it."
    )
    SHELL_NO_BETWEEN = "the model file will not say how sites differ: {why}"
    SHELL_NOT_PERSONAL = (
        "no block of parameters differs between sites, as far as this prior says{restricted}: the "
        "personal model is the mean of the sites."
    )
    SHELL_OFFSET_UNSAID = (
        "the model was fitted with an offset, column {column!r}, which counts as 0 here; give "
        "--offset {column}."
    )
    SHELL_PERSONAL_STOPPED = (
        "the fit stopped before it converged: use the common model, or --restrict intercepts."
    )
    SHELL_FEW_GROUPS = (
        "Its scatter is made of the scores of {groups:,} {what} for {parameters:,} parameters: "
        "FEW, since it has no more dimensions than these, and single ones may be told apart in it."
    )
