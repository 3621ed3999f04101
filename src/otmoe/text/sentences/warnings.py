"""What a user should know about a result: the sentences of all warnings."""

from enum import unique

from otmoe.text.notices import Sentence


@unique
class Warn(Sentence):
    """Warnings by code."""

    # -- a fit
    RANK_DEFICIENT = (
        "the {columns} columns of the design (intercept included) span only {rank} dimensions: "
        "columns are constant or collinear, or there are too few rows; the coefficients are the "
        "minimum-norm solution."
    )
    FEW_ROWS = (
        "there are {rows} rows for {parameters} parameters: use fewer experts or features, or "
        "rely on predictions only."
    )
    EXPERTS_WITHOUT_ROWS = (
        "almost no rows are assigned to {lost} of {experts} experts (expert {which}): use fewer "
        "experts."
    )
    EXPERT_BY_CHANCE = (
        "expert {expert} rests on {rows:.0f} rows for {coefficients} coefficients, and so few "
        "rows can lie close to a plane by chance: use fewer experts."
    )
    VARIANCE_AT_FLOOR = (
        "expert {which} fits its rows exactly, so its variance stopped at the floor ({floor:g} of "
        "the variance of y): use fewer experts or more rows."
    )
    TWO_VALUES = (
        "y takes two values only, and such a y is a class, which experts with a variance fit "
        "exactly: use MoEClassifier."
    )
    NO_OVERDISPERSION = (
        "the counts of expert {which} are not overdispersed, so its dispersion stopped at the "
        "floor ({floor:g}): use the poisson family."
    )
    IDENTICAL_EXPERTS = (
        "experts {first} and {second} predict the same wherever they contribute: use fewer experts."
    )
    SEPARATED = (
        "a hyperplane separates the rows of expert {expert} by class, so only the ridge "
        "expert_alpha keeps its coefficients finite, above all that of {term}: interpret its "
        "predictions, not its coefficients, or use fewer experts or features."
    )
    FOUND_ONCE = (
        "{agreed} of {searches} independent searches ended in this maximum{gap}: raise n_init to "
        "be more certain of it, or use fewer experts."
    )
    NOT_CONVERGED = "the fit {status}: raise max_iter or alpha, or use fewer experts."

    # -- how sites differ
    FEW_SITES = (
        "fewer than {least} sites have enough rows to estimate how much they differ in {blocks}: "
        "these are assumed to be the same at every site."
    )

    BETWEEN_NOT_AT_MAXIMUM = (
        "the sites replied about a model that is not at the maximum, so the estimated differences "
        "between them, and the prior for a new site, are rough."
    )

    # -- standard errors
    COLUMNS_UNDETERMINED = (
        "the rows do not determine the coefficients of {terms}: columns are constant or "
        "collinear, or there are too few rows; leave some out."
    )
    GATE_UNDETERMINED = (
        "the rows do not determine the gate of expert {expert} against expert {reference} "
        "({terms}): either it separates them, so that its coefficients diverge until the ridge "
        "stops them, or alpha is too large, which a fit with a smaller one will show."
    )
    EXPERT_UNDETERMINED = (
        "the rows do not determine expert {expert} ({terms}): it has too few rows, or x separates "
        "their responses."
    )
    RIDGE_MOVED = (
        "the ridge has moved {count} parameter{plural} by more than {bound} standard errors "
        "({worst} the most, by {distance:.1f}), which the intervals do not account for: fit with "
        "a smaller alpha or expert_alpha."
    )

    FEW_GROUPS = (
        "there are {groups} groups for {parameters} parameters: the covariance matrix does not "
        "have full rank, so joint tests of many parameters mean little, and standard errors tend "
        "to be too small; use fewer experts or features."
    )
    SCATTER_MISSING = (
        "{names} sent no scatter of scores, so standard errors are from the information matrix: "
        "valid if the model is correct and the rows are independent."
    )
    ROWS_SHARE_AN_ID = (
        "the column {column!r} looks like an identifier but is used as a feature: rows that share "
        "a value of it may not be independent. Leave it out of the features, and pass it to "
        "inference as groups."
    )

    OFFSET_UNSAID = (
        "the model was fitted with an offset, which is taken as 0 here; give `offset`, as in fit."
    )

    # -- merging
    SUPPORT_SHORT = (
        "the support has {points} points for {columns} columns (intercept included): give at "
        "least {least}, preferably 2,000, or the merged coefficients will be unstable."
    )
    SUPPORT_UNCOVERED = (
        "{lost} of {points} support points were dropped, since every site has a feature that "
        "never varied there and takes another value at these points."
    )
    SITES_SILENT = (
        "the sites {names} sent neither a sketch nor rows, so no support points come from them."
    )
    EXPERTS_EMPTY = "{empty} of {experts} experts receive no mass from any site: use fewer experts."
    NOBODY_EXCLUDED = (
        "no site was left out: with {models} different models or fewer, outliers cannot be "
        "identified."
    )
    NEAR_COPIES = (
        "the sites {names} sent models that agree to six digits, which fits to different rows "
        "would not do: they count as one site where models are compared, with the weight of all."
    )
    SITE_DOMINATES = (
        "site {name!r} claims {share:.3g} of all rows and differs from the others by more than "
        "chance explains, so the result is mostly its own: limit it with max_weight, or use "
        "outliers='exclude'."
    )
    WEIGHT_LIMITED = (
        "the weight of {names} was limited to {most:.3g} of the total (its share of the rows is "
        "{share:.3g}); max_weight=1 lifts the limit."
    )
    OTHER_EXPERTS = (
        "the sites {names} do not have the {experts} experts asked for, so {method} ignores them."
    )
    SITES_EXCLUDED = "{count} of {total} sites stand out and were left out ({reasons})."
    SITES_STAND_OUT = (
        "{count} of {total} sites stand out but are included in the aggregate ({reasons}): check "
        "them, or leave them out with outliers='exclude'."
    )

    SITES_DIFFER = (
        "at {count} of {total} sites the site's own model is expected to do better than the merged "
        "one, by more than chance explains ({names} nats per row): a single model may not suit all "
        "sites; fit personal models as well (personal='auto', or otmoe personalise)."
    )

    # -- shards
    FEWER_SHARDS = (
        "there are only enough rows for {shards} of {wanted} shards: give more rows, or use fewer "
        "shards, experts or features."
    )
    SHARD_FAILED = "shard {name}: {cause}"
    ROWS_DROPPED = "{rows:,} of {total:,} rows were dropped because a value is missing{columns}."
    SHELL_SMALL_SHARDS = (
        "the median shard has {rows:,.0f} rows for {parameters:,} parameters: fewer, larger "
        "shards, such as --cut {fewer}, lose less in merging."
    )
    EMPTY_SHARDS = "shards without rows were skipped: {count:,} of {total:,}, such as {name}."
    INDEX_LEFT_OUT = (
        "column {column!r} looks like the index of a data frame and is not used as a feature; "
        "list the features explicitly to use it."
    )
    MARKS_IN_NUMBERS = (
        "column {column!r} holds numbers, but {mark!r} in some rows, and is surveyed as text: "
        "leave these cells empty to mark them as missing."
    )
    SHARD_LEFT_OUT = "{name} was left out: {why}."
    SHARDS_STOPPED = "the fits of {names} stopped before convergence: raise max_iter."
    SOME_SHARDS = "for some shards: {warning}"

    # -- how many experts
    THIN_SITES = (
        "Local fits have {ratio:.1f} rows per parameter, and {wanted} are needed: neither rule "
        "can be trusted; try fewer experts, or join sites."
    )
    SLIGHT_BEND = (
        "The bend at {experts} experts is slight, as it is with one expert or overlapping ones: "
        "log R_c has no clear elbow."
    )
    LARGEST_TRIED = "{experts} is the largest number tried: try more."
    OF_CANDIDATE = "K = {experts}: {warning}"
    LESS_LIKELY = (
        "its log-likelihood is below that of K = {fewer}, so a better maximum exists: use more "
        "starts, or refine merged models."
    )
    STOPPED = "it {status}."

    # -- refine rounds
    ROUNDS_ENDED = (
        "After {rounds} refine rounds the maximum has not been reached ({status}): use fewer "
        "experts, raise alpha, leave out sites that differ from the others{names}, or fit shards "
        "with method='em'."
    )
    STEP_TAKEN_BACK = (
        "The step of refine round {rounds}, the last, lowered the likelihood and was undone: "
        "allow more rounds, or use refine='auto'."
    )

    REPLY_DROPPED = (
        "{site} is left out from refine round {round} on, since its reply cannot be right: {why}."
    )

    # -- the shell
    SHELL_STOPPED = "the fit {status}; try a larger --starts, or fewer --experts."
    SHELL_FITS_KEPT = (
        "local fits done so far ({count}) are kept in {folder}: the same command continues from "
        "there."
    )
    SHELL_LEFT_OUT = "left out: {why}"
    SHELL_NO_REPLY = "no reply from {names}: this step was taken without it."
    SHELL_SET_ASIDE = "this step was taken without one of the files: {why}"
    SHELL_MISSED = "{names} missed the last round: the model is based on the other sites."
    SHELL_NOT_AT_MAXIMUM = (
        "the maximum has not been reached; to continue, start more rounds from this model."
    )
    SHELL_NO_INFERENCE = "there are no standard errors: {why}"
    SHELL_NO_SCATTER = (
        "{names} sent no scatter: unless every reply to the last round has one, standard errors "
        "will be from the information, not the sandwich."
    )
    SHELL_SANDWICH_UNASKED = (
        "the request does not ask for the scatter of scores, so --sandwich (or --scatter) and "
        "--groups add nothing to this reply."
    )
    SHELL_SANDWICH_ASKED = (
        "the request asks for the scatter of scores, {why}, and this reply does not include it: "
        "give --scatter, or --groups COLUMN, if the site agrees to send it."
    )
    SHELL_NO_BETWEEN = "the model file will not say how sites differ: {why}"
    SHELL_NOT_PERSONAL = (
        "under this prior{restricted}, no block of parameters differs between sites: the personal "
        "model is the mean of the sites."
    )
    SHELL_GROUPS_UNSAID = (
        "rows of a group share one expert in this model, but each row is evaluated as the only one "
        "of its group: give the column of groups, as in --expert-per {column}."
    )
    SHELL_OFFSET_UNSAID = (
        "the model was fitted with an offset, column {column!r}, which is taken as 0 here; give "
        "--offset {column}."
    )
    SHELL_PERSONAL_STOPPED = (
        "the fit stopped before convergence: use the common model, or --restrict intercepts."
    )
    SHELL_FEW_GROUPS = (
        "Its scatter is a sum over {groups:,} {what} for {parameters:,} parameters: FEW, since "
        "its rank is at most that number, and single {what} might be identified from it."
    )
