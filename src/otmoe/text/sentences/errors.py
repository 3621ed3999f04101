# Long because one file holds the sentences of all errors, so that wording can be improved and is
# the same everywhere.
"""What is wrong and what to do: the sentences of all errors."""

from enum import unique

from otmoe.text.notices import Sentence


@unique
class Error(Sentence):
    """Errors by code.

    A sentence about a field of a document follows its path: "`model.gate.coef` is empty; ...".
    """

    # -- arguments, fields and files
    CLASS_UNKNOWN = (
        "y has the class {label!r}, which is not one of the classes {classes}: declare all "
        "classes with classes=[...]."
    )
    ROWS_WITHOUT_WEIGHT = "sample_weight is zero for every row: there is nothing to fit."
    RENAMED = "{function}: the argument {old} is now called {new}."
    NOT_WHOLE = "{name} is {value!r}; give a whole number of at least 1."
    WEIGHT_OF_ROW = (
        "sample_weight is negative in row {row} ({value:g}): weights count rows, so give zero or "
        "more."
    )
    RESPONSE_TOO_LARGE = (
        "y is {value:g} in row {row}: values beyond {most:g} cannot be fitted; drop the row, or "
        "change the units of y."
    )
    NOT_COUNTS = (
        "y is {value:g} in row {row}: the {family} family takes {numbers} from {lowest:g} to "
        "{highest:g}."
    )
    RESPONSE_COLUMNS = (
        "y has shape {shape}: the {family} family takes one number for each row, shape (n,); "
        "successes in trials are of the binomial family."
    )
    NOT_TRIALS = (
        "y has shape {shape}: the binomial family takes two columns, successes and failures, or "
        "one of outcomes 0 and 1."
    )
    JOINT_COLUMNS = (
        "y has shape {shape}: the families {family} take {wanted} columns, one for each response "
        "and two (successes and failures) for the binomial family."
    )
    TRIALS_NOT_COUNTS = (
        "y has {value:g} {what} in row {row}: the binomial family takes whole numbers of successes "
        "and of failures, from 0; where a table has trials, failures are trials less successes."
    )
    NOT_POSITIVE = (
        "y is 0 in row {row}: the gamma family takes positive numbers; drop such rows, or use "
        "another family."
    )
    ONE_PER_ROW = "{name}.shape == {shape}, expected {wanted}: one number per row of X."
    NO_PANDAS = (
        "coefficient tables need pandas: install it with `pip install 'otmoe[pandas]'`, or read "
        "the arrays model_.experts.coef and model_.gate.coef."
    )
    NO_FRAME = (
        "tables of the differences between sites need pandas: install it with `pip install "
        "'otmoe[pandas]'`, or read between.coefficients(), between.spreads and between.sites."
    )
    NO_FEATURE_FRAME = (
        "a data frame needs pandas: install it with `pip install 'otmoe[pandas]'`, or use X and "
        "feature_names."
    )
    PARAMETER_POSITION = (
        "there is no parameter {position}; give a position from 0 to {last}, or a term."
    )
    NO_FOLDER_TO_WRITE = "cannot write {file}: the folder {folder} does not exist; create it first."
    SCHEMA_VERSION = (
        "is {version}; this version of otmoe reads {known}: update otmoe, or ask for the file in "
        "version {known}."
    )
    SECOND_TIME = "repeats {value}; list each value once."
    LIMIT = (
        "has {what}; if that is intended, raise the limit with limits=otmoe.Limits({limit}=...)."
    )
    NOT_TEXT = "the text is a {kind}; give str or bytes, or pass the path of a file to `load`."
    KEY_TWICE = "occurs twice; keep one of them."
    NOT_AN_OBJECT = "holds {value}; an otmoe file is a single JSON object, in braces."
    NOT_UTF8 = (
        "byte {byte} is not UTF-8 text, and files written by otmoe are UTF-8 JSON; check the name, "
        "or save the file as UTF-8."
    )
    TOO_DEEP = (
        "lists or objects are nested too deeply; no otmoe file looks like this, so ask for it "
        "again."
    )
    LABEL_KIND = "is {value}; give text, a number, true or false."
    SITE_UNNAMED = "is empty; give the site a name."
    NAME_TOO_LONG = "has {length} characters; give a name of at most {most}."
    INVISIBLE_CHARACTER = (
        "contains the invisible character U+{character}; write the name without it."
    )
    NAMES_MEET = "has two keys that are the same name spelled differently; keep one."
    LOOK_ALIKE = "{name} looks like {other} but is a different name; write both in one alphabet."
    CONTROL_CHARACTER = "contains the control character U+{character}; remove it."
    FIELD_MISSING = "is missing; add it."
    FIELD_UNKNOWN = (
        "is not a field of schema version {version}; remove it, or update otmoe if a newer "
        "version wrote the file."
    )
    FIELD_NUMBER = "is {value}; give a number."
    FIELD_NAN = "is {value}; give a finite number."
    FIELD_INFINITE = "is infinite or too large; give a finite number."
    FIELD_NOT_POSITIVE = "is {value}; give a number above 0."
    FIELD_TOO_SMALL = "is {value}; give a number of at least {least:g}."
    FIELD_TOO_LARGE = "is {value}; give a number of at most {most:g}."
    FIELD_WHOLE = "is {value}; give a whole number."
    FIELD_BOOLEAN = "is {value}; give true or false."
    FIELD_TEXT = "is {value}; give text."
    FIELD_LIST = "is {value}; give a list."
    FIELD_OBJECT = "is {value}; give an object."
    FIELD_CHOICE = "is {value}; give {choices}."
    FIELD_INVALID = "is {value}; {reason}."
    JSON_EMPTY = "is empty; ask for it again."
    JSON_CUT = "ends too early, after {length} characters; ask for it again."
    JSON_INVALID = (
        "is not a file written by otmoe, or is damaged: it is not valid JSON ({reason}); check the "
        "name, or ask for it again."
    )
    TEXT_IN_X = (
        "{columns} {hold} text: encode it as numbers first, for example with OneHotEncoder "
        "({error})."
    )

    # -- tables, columns, shards, sketches
    NOT_ONE_OF = "{name} is {value!r}; choose one of {choices}."
    PRIOR_WRONG = (
        "the between-site deviation of {name!r} is invalid: give numbers of at least 0, for some "
        "of {choices}."
    )
    NO_SPREAD = (
        "differences between sites cannot be estimated: {sites} sent no scatter of scores; ask "
        "for it, or leave these sites out."
    )
    BETWEEN_WITHOUT_ROUNDS = (
        "`between` uses the replies to refine rounds, and none were requested; request them, for "
        'example with refine = "auto".'
    )
    ONE_SITE_ALONE = "differences between sites cannot be estimated from one site; ask two or more."
    NO_DIFFERENCES = (
        "differences between sites cannot be estimated from the replies of {sites}: {reason}. Ask "
        "these sites again, or drop the features or experts for which they have too few rows."
    )
    STEP_BACK_NO_SPREAD = (
        "differences between sites cannot be estimated: the last step was undone, and the replies "
        "refer to it; refine for more rounds."
    )
    NOT_PERSONAL = (
        "this estimator has no personal models: fit it with personal='auto' and say which site "
        "each row belongs to."
    )
    SITE_UNKNOWN = "there is no site {site!r}; choose one of {sites}."
    NO_MATCH = "no file matches {pattern}; check the folder and the pattern."
    NOT_A_MATRIX = "{name} has shape {shape}; give an array of shape (n, d)."
    SKETCH_ROWS = (
        "X has {rows:.3g} rows (counted by weight), and a sketch needs {least}: a mean over fewer "
        "reveals too much about each row; send no sketch."
    )
    NOT_FINITE = "X contains NaN or infinity: drop such rows, or impute the values."
    SAMPLE_LACKS_COLUMN = (
        "column {column!r} is missing in all {rows} rows of the sample; leave it out of "
        "`columns`, or give a sample that has values for it."
    )
    FEW_LEVELS = "must list at least two levels; add them."
    NO_FEATURE = (
        "column {column!r} holds {kind}, which cannot be a feature; convert it to numbers or "
        "text, or leave it out."
    )
    MANY_LEVELS = (
        "column {column!r} has {levels:,} distinct values, and max_levels is {most}; leave it out, "
        "merge some of them, or raise max_levels."
    )
    ONE_LEVEL = (
        "column {column!r} has the value {value} throughout the sample; leave it out, or give a "
        "sample that has all its values."
    )
    SAMPLE_EMPTY = "the sample has no rows; give some."
    WRONG_KIND_OF_COLUMN = "does not apply to a {kind}; remove it."
    NOT_A_TERM = "features: {value} is not a term; give a Spline or an Interaction."
    WRONG_KIND_OF_TERM = "does not apply to a term of kind {kind}; remove it."
    SPLINE_OF_NO_NUMBER = (
        "a spline needs a numeric column, and {column} is not one; name a numeric column."
    )
    SPLINE_DF = (
        "the spline of column {column!r} has {df} degrees of freedom; give {least} to {most}, "
        "including the slope."
    )
    SPLINE_FEW_VALUES = (
        "column {column!r} has {values} distinct values in the sample, too few for a spline with "
        "{df} degrees of freedom; give fewer degrees, or use the column as it is."
    )
    KNOTS_COUNT = "has {knots} knots; give {least} to {most}."
    KNOTS_CLOSE = (
        "has knots that do not increase, or that nearly coincide; list distinct values in "
        "increasing order."
    )
    INTERACTION_PARTS = (
        "is {parts}; name two different columns, or a column and a spline listed above it."
    )
    INTERACTION_UNKNOWN = (
        "names {name}, which is neither a column nor a spline listed above it; add it, or correct "
        "the name."
    )
    FORMULA_UNREADABLE = "the formula {formula!r} needs {wanted} at {found}; correct it there."
    FORMULA_NO_TEXT = "the formula is a {kind}; give text such as 'y ~ a + b | c'."
    FORMULA_FUNCTION = (
        "the formula has {name}(...), and spline(column, df) is the only function; compute other "
        "columns beforehand, and name columns of text or categories without C(...)."
    )
    FORMULA_THREE = (
        "the formula {formula!r} has a product of more than two columns; only products of two are "
        "supported."
    )
    FORMULA_SQUARE = (
        "the formula multiplies column {column!r} by itself; write spline({column}) for a curve."
    )
    FORMULA_TWO_DF = (
        "the formula has splines of column {column!r} with {df} and {other} degrees of freedom; a "
        "column has one set of knots, so give one number."
    )
    FORMULA_GATE_INTERCEPT = (
        "the formula {formula!r} leaves out the intercept after the bar, but the gate always has "
        "one; write 0 or - 1 before the bar, for the experts."
    )
    FORMULA_GROUPS = "groups is a {kind}; give the name of the column that has the labels."
    FORMULA_GATE = (
        "the formula has the features of the gate after its bar, and gate_features is given too; "
        "give one of them."
    )
    FORMULA_NO_COLUMNS = "the formula names no column; a model needs at least one feature."
    FORMULA_NO_TARGET = "the formula has no response; write its column and ~ before the features."
    FORMULA_OTHER_FEATURES = (
        "{name!r} is only in the {who}; make the file of features from the same formula."
    )
    FORMULA_TARGET_TWICE = (
        "the formula lists the response {column!r} among the features; remove it there."
    )
    MANY_DERIVED = (
        "make {features} features, and the limit is {most}; use interactions of columns with "
        "fewer levels."
    )
    NO_COLUMNS = "is empty; give at least one column."
    FEATURES_INSIDE = "is {kind}; read its features with otmoe.load_features."
    OTHER_DOCUMENT = "is {kind}; give a file of {wanted}."
    COLUMN_EMPTY = "column {column!r} is missing in all {rows} rows; leave it out, or fix it."
    COLUMN_MISSING = (
        "values are missing in some of the {rows:,} rows: {columns}; drop these rows (with "
        "dropna(), or missing='drop' in from_formula and for shards), or have the features encode "
        "missing values (missing='indicator', in from_formula or FeatureSpec.from_sample)."
    )
    GAPS_IN_X = (
        "Input X contains NaN in some of the {rows:,} rows: {columns}; drop these rows, or encode "
        "a table with FeatureSpec.from_sample(table, missing='indicator'), which fills in means "
        "and adds indicators."
    )
    COLUMN_INFINITE = "column {column!r} is infinite in {count} rows; fix them."
    COLUMN_NEGATIVE = (
        "column {column!r}, the weight, is negative in {count} rows; give zero or more."
    )
    COLUMN_LEVELS = (
        "column {column!r} has values that are not among its levels: {values}{more}; add them to "
        'the levels, or set unknown to "reference".'
    )
    NOT_A_COLUMN = (
        "features: {value} is not a Column; make it one, or use FeatureSpec.of_names for plain "
        "numbers."
    )
    TARGET_MISSING = "target is missing; give the name of the response column."
    ROLES_SHARED = "target, weight and site are {columns}; give each its own column."
    CUT_WRONG = 'cut is {value!r}; give "file", "row_group" or a positive whole number.'
    SITE_AND_CUT = "site and cut are both given; the sites are the shards, so drop cut."
    ARRAYS_HAVE_NO_COLUMNS = (
        "target, weight and site are column names, and arrays have none; leave them out, or give "
        "a table."
    )
    TARGET_KIND = (
        "column {column!r}, the target, holds {kind}; give numbers, or text for a classifier."
    )
    FILE_KIND = (
        "{path} is not a Parquet, CSV, Feather or Arrow file: its name ends in none of {endings}; "
        "rename or convert it."
    )
    NO_FILES = "data is an empty list; give at least one file."
    FOLDER_EMPTY = "the folder {folder} has no data files (names ending in {endings}); check it."
    FOLDER_MIXED = (
        "the folder {folder} has both Parquet and CSV files; select one kind with a pattern such "
        "as folder/*.parquet."
    )
    UNREADABLE = "cannot be read: {reason}; fix it, or leave it out."
    UNREACHABLE = "{path} cannot be reached: {reason}; check it."
    NOT_A_FILE = (
        "data has a {kind} among its files; give paths, or one frame, or the arrays (X, y)."
    )
    NOT_THERE = "there is no file or folder {path}; check the name."
    ROWS_CHANGED = (
        "{counted} rows were counted when the shards were made, but {found} are read now: the "
        "files have changed; make the shards again."
    )
    TARGET_TEXT = "column {column!r}, the target, holds text where numbers are expected; fix it."
    CUT_TOO_FINE = "cut is {cut}, but there are only {rows} rows; give a smaller number."
    FEATURES_TEXT = "features is {value!r}; give a list of names, or a FeatureSpec."
    SITE_MISSING = "column {column!r}, the site, is missing in {count} rows; fill it in."
    TUPLE_SIZE = "data is a tuple of {size}; give (X, y) or (X, y, weight)."
    NO_ROW_GROUPS = "rows in memory have no row groups; give a number of shards as cut."
    ROLE_AS_FEATURE = "column {column!r} cannot also be a feature; leave it out of them."
    FEATURES_OF_ARRAY = "features describe named columns, and X is an array; leave them out."
    LENGTHS_DIFFER = (
        "{name} has {rows} rows and {other} has {others}: give the same number, at least one."
    )
    FILES_DISAGREE = "the files have different columns: {reason}; fix them."
    FILE_LACKS_COLUMN = (
        "there is no column {column!r}, which {other!r} has; fix it, or leave the file out."
    )
    NOT_ENCODED = (
        "X has {columns} columns, but `features` makes {features}: give encoded features, as "
        "features.encode(table) returns them."
    )
    NOT_A_TABLE = (
        "the table is a {kind}; give a pyarrow table, a pandas or polars frame, or a mapping "
        "from column names to arrays."
    )
    LAZY_FRAME = "the table is a lazy frame; call .collect() on it first."
    NOT_A_VECTOR = "{name} has shape {shape}; give one value per row."
    NOT_NUMBERS = (
        "column {column!r} holds {kind} where numbers are expected; fix the column, or make it a "
        "category in the features."
    )
    NO_COLUMN = "there is no column {column!r}; {hint}there are {columns}."
    ONE_COLUMN = (
        "there is no column {column!r}, and the only one is {only!r}: columns are probably "
        "separated by another character than the one used; give the right one as sep (by default "
        "comma, semicolon, tab and bar are recognised)."
    )
    STRAY_MARK = (
        "column {column!r} holds numbers, but {mark!r} in some rows: leave these cells empty to "
        "mark them as missing."
    )
    COLUMN_TWICE = "there are two columns {column!r}; rename or remove one."
    TABLE_UNREADABLE = "the table cannot be read: {reason}."
    NOT_A_CATEGORY = (
        "column {column!r} holds {kind} where a category is expected; convert it to text."
    )
    KINDS_DIFFER = "column {column!r} holds {kind} where other files hold {other}; make them agree."
    FRACTIONS = (
        "column {column!r} holds fractions where a category is expected; fix the column, or make "
        "it a number in the features."
    )
    REFERENCE_UNKNOWN = "is {value}, which is not one of the levels; give one of them."
    FILE_TWICE = "{file} is given twice; its rows would count twice, so name it once."
    SAME_FILE = "{file} and {other} are the same file; name it once."

    # -- documents
    NO_SITES_MERGED = "is empty; a merged model has at least one site."
    SUM_NOT_ONE = "adds up to {total:.6g}; give shares that add up to 1."
    LENGTH = "has {length} entries; give {wanted}."
    GATE_WITHOUT_FILE = "the gate is a {kind}; only models with a SoftmaxGate can be saved."
    SHARE_WRONG = "share is {value!r}; give a whole number from 0 to {most}."
    MODEL_WITHOUT_SITE = (
        'is "model", a model without a site or a number of rows; read it with '
        "otmoe.load_model, or ask the site for its message."
    )
    OTHER_ROWS = (
        "X has {rows:g} rows (the sum of their weights), but the fit had {fitted:g}: give the "
        "rows and weights of the fit."
    )
    KIND_MISSING = "is {kind}; this field has to name the kind of otmoe file."
    LENGTH_OF_MODEL = (
        "has {length} entries; give {wanted}, to match the first axis of `model.experts.coef`."
    )
    NOT_ZERO = "is {value}; give 0: {reason}."
    GATE_WITHOUT_INTERCEPT = "lacks 0, the intercept; add it."
    NO_CLASSES_HERE = "is a list, but this family has no classes; give null."
    LENGTH_OF_CLASSES = "has {length} labels; give {wanted}, as many as the experts have."
    CLASSES_MIXED = "mixes types or has numbers that are too large; give labels of one type."
    LENGTH_OF_RESPONSES = (
        "has {length} names; give {wanted}, one for each of several responses, or leave it out."
    )
    FEATURES_COUNT = "makes {features} features, but the model has {wanted}; fix it."
    ONE_CLASS = "has a row for one class; give two or more."
    LENGTH_OF_NAMES = (
        "has {length} names; give {wanted}, one for each coefficient after the intercept."
    )
    EMPTY = "is empty; give coefficients."
    GATE_COLUMN = "is {value}; columns run from 0 to {last}."
    STRUCTURE_COUNT = (
        "has {length} entries for {experts} experts; give one for all, or one for each."
    )
    STRUCTURE_RESPONSES = (
        "has {length} lists of columns; the family has {responses} responses: give one for each."
    )
    STRUCTURE_TWICE = "is given beside `columns`; give one of the two."
    NOT_COMMON = "differs between experts, though `{field}` says it is the same; give one number."
    NOT_A_FEATURE = "is not a feature of the model; use the model's feature names."
    LENGTH_FOR_EACH = "has {length} numbers; give {wanted}, one for each {what}."
    TRIANGLE = "has {length} numbers; the upper triangle of {size} x {size} has {wanted}."
    SUM_NOT_ROWS = "adds up to {total:g}, but n_samples is {rows:g}; fix it."
    GROUPS_ABOVE_ROWS = "is {value}, but there are {rows} rows; fix it."
    OTHER_PARAMETERS = (
        "is a model of a different kind or size than `model`; give one with the same family, "
        "experts, features and classes."
    )
    BLOCKS_OF_MODEL = "must have one entry for each of {wanted}, in this order; fix it."
    PARAMETERS_OF_BLOCK = "is {value}, but the model has {wanted} parameters in this block; fix it."
    TAU_OF_PRIOR = "is {value}, but `between.prior.tau` says {other}; make them agree."
    NO_PERSONAL_MODEL = (
        "gives a model with coefficients beyond 1e30, or a variance beyond 1e60 or below 1e-60; "
        "ask for the file again."
    )
    NOT_A_SCATTER = (
        "cannot be a sum of products of that many scores with total `score`; write its upper "
        "triangle row by row."
    )
    DIGEST = "does not match the model beside it; ask for the file again."
    NO_SITES_ASKED = "is empty; name the sites to ask."
    STATE_INCOMPLETE = "and `pooled` must be present once a round has been answered; fix it."
    STATE_SITES = "must name some of `sites`, and no others; fix it."
    STATE_MISSING = "is not a site, or not a round so far; fix it."
    SKETCH_OF_OTHER_FEATURES = (
        "the sketch has {features} features, but the model has {wanted}: sketch the rows of the "
        "fit."
    )
    NAMES_NO_FEATURE = "names {name}, which is not a feature of the model."
    NAMED_TWICE = "names {name} twice; give each feature once."
    NAMES_NO_NUMBER = "names {name}, which is not a numeric column; fix it."
    FAMILY_DIFFERS = (
        "{who} has {family} experts, but {other} has {wanted} ones: only models of one family can "
        "be combined."
    )
    N_FEATURES_DIFFER = (
        "{who} has {features} features, but {other} has {wanted}: fit all sites to the same "
        "columns."
    )
    NAMES_MISSING = (
        "{who} has no feature names, but {other} does: fit all sites to data frames with the same "
        "columns."
    )
    NAMES_ORDER = (
        "{who} has the features of {other} in a different order (feature {place} is {name} "
        "instead of {wanted}): fit it to the columns in the same order."
    )
    NAMES_DIFFER = (
        "{who} has the features {extra} where {other} has {missing}: fit all sites to the same "
        "columns."
    )
    RESPONSES_OTHER = (
        "the target names the responses {responses}, but those of the model are {wanted}: name "
        "them in this order, and rename columns where they are called otherwise."
    )
    RESPONSES_DIFFER = (
        "{who} has the responses {responses}, but {other} has {wanted}; fit all sites with the "
        "same responses, in the same order and under the same names."
    )
    STRUCTURE_DIFFERS = (
        "{who} and {other} were fitted with different restrictions ({what}); fit all sites with "
        "the same expert_features, common and common_variance."
    )
    ENCODING_DIFFERS = (
        "{who} has {what} than {other}, so their coefficients cannot be compared: fit all sites "
        "with the same file of features."
    )
    CLASSES_DIFFER = (
        "{who} has the classes {classes}, but {other} has {wanted}: declare the same classes, in "
        "the same order, at every site."
    )
    LENGTH_OF_EXPERTS = "has {length} entries; give {wanted}, one for each expert of the model."
    LOW_ABOVE_HIGH = "is {low}, above `high` ({high}); fix it."
    FAMILY_UNKNOWN = (
        "is {name}; this version of otmoe has {known}: use one of these, or update otmoe."
    )
    SUPPORT_ROWS = "has {rows} rows; give 1 to {most}, or leave it out."
    LABEL_TOO_LONG = "has {length} characters; give a label of at most {most}."
    FEATURES_OTHER = "makes {name} where `model.feature_names` has {wanted}; fix it."
    LENGTH_OF_FEATURES = "has {length} entries; give {wanted}, one for each feature of the model."
    ROWS_OF_SKETCH = "has {rows} rows; give {wanted}, one for each entry of `sketch.weight`."
    NOT_A_COVARIANCE = (
        "is not positive definite; give the upper triangle of a covariance, row by row."
    )
    SKETCH_LACKS = "lacks the feature {name}; add it to `numbers`, `categories` or `constants`."

    # -- models
    NOT_A_LEVEL = "{name} is {value}; give a number strictly between 0 and 1."
    X_IS_A_TABLE = (
        "X is a {kind}, and a model takes an array of its features: give X.to_numpy(), or make an "
        "estimator with MoERegressor.from_model or MoEClassifier.from_model."
    )
    X_SHAPE = (
        "X has shape {shape}; the model has {features} features, so give an array of shape (n, "
        "{features}), with at least one row."
    )
    DIVERGENCE_FAMILIES = (
        "f has {family} experts and g has {other} ones: costs are defined within one family only."
    )
    DIVERGENCE_SHAPES = (
        "f and g are for different data: the coefficients of an expert have shape {shape} in f "
        "and {other} in g."
    )
    TRANSPORT_SHAPES = (
        "cost has shape {cost}, supply {supply} and demand {demand}: give (n, L, K), (n, L) and "
        "(n, K)."
    )
    COST_NOT_FINITE = "cost has infinite or missing entries: give finite ones."
    TOTALS_DIFFER = (
        "in row {row}, supply adds up to {supply:g} and demand to {demand:g}: give equal totals."
    )
    LINEAR_PROGRAM = "linear programming failed on problem {problem}: {reason}"
    NOT_MASSES = "{name} has negative, infinite or missing entries: give masses."
    NO_ORDER = (
        "{family} responses are unordered, so they have neither a distribution function nor "
        "quantiles."
    )
    NO_QUANTILES = (
        "the {family} family has no quantiles: y depends on the number of trials, which a row to "
        "predict does not have; predict its expected share instead."
    )
    JOINT_NOT_HERE = (
        "{what} takes models of one response, and this one has several; fit the response by itself."
    )
    JOINT_NO_QUANTILES = (
        "a model of several responses has no quantiles; fit the response by itself for them."
    )
    JOINT_NO_OFFSET = (
        "a model of several responses takes no offset: it would be added to every one of them."
    )
    NO_OFFSET = "multinomial experts take no offset: it would cancel in the softmax."
    ALIGN_UNEQUAL = (
        "cannot align {experts} experts to {others}: both models need the same number of experts."
    )

    # -- likelihood
    NO_ROUND_YET = "no refine round has been answered yet: ask the sites first."
    NOT_ROWS = "is {value}; give a number of rows."
    GRAM_NOT_ROWS = (
        "is {value:g}, but the expert has {rows:g} rows, each of which adds at most {most:g} to "
        "the intercept entry; fix it."
    )
    LESS_THAN_A_ROW = (
        "is {value:g}; a site has at least one row: give weights that add up to the number of rows."
    )
    CONSTANT_VARIES = (
        "is {value:g} in every row, but the sketch or the rows sent have other values; fix one of "
        "them."
    )
    NOT_A_GRAM = "is not a sum of x x', which has no negative eigenvalues; write it row by row."
    NO_MOMENTS = (
        "no site sent means and variances of its features, which the first round needs: ask the "
        "sites to answer again."
    )
    NO_SCALE = "the identity scaling has no matrix: the number of columns is not known."

    # -- standard errors
    NO_EVIDENCE = (
        "the fit did not end with Newton steps, so standard errors are not available from it: "
        "give the rows that were fitted, as in inference(X, y)."
    )
    ROWS_FOR_SANDWICH = "the sandwich needs the rows that were fitted: give X and y."
    GROUPS_AND_INFORMATION = (
        "kind='information' assumes independent rows, and groups say that they are dependent: "
        "drop one of the two."
    )
    GROUPS_MISSING = "kind='clustered' needs to know which rows belong together: give groups."
    ONE_GROUP = (
        "there are {groups} groups of rows, and variation between groups cannot be estimated from "
        "fewer than 2: give the label of each row, such as the person it is about."
    )
    GROUP_MISSING = (
        "{name} lacks labels for {count} rows, the first of which is row {row}: give every row a "
        "label, and a unique one to a row that belongs to no group."
    )
    GATE_VARIES = (
        "gate feature {name!r} varies within group {group}, but rows of a group share one expert: "
        "list features that are constant within groups in gate_features, or use "
        "gate_features='intercept'."
    )
    WEIGHT_VARIES = (
        "sample_weight varies within group {group}, but rows of a group share one expert: give all "
        "rows of a group the same weight."
    )
    SHARING_ON_DEVICE = (
        "expert_per='group' needs NumPy arrays: convert X and y, or use expert_per='row'."
    )
    SHARING_NEEDS_GROUPS = (
        "rows of a group share one expert in this model: give groups, the group label of each row "
        "(on the command line a column, by --expert-per, or by --groups in `otmoe refine answer`)."
    )
    GROUPS_NOT_SHARED = (
        "groups are not used when every row has its own expert: set expert_per='group', or give "
        "groups to inference() for cluster-robust standard errors."
    )
    GROUP_AT_TWO_SITES = (
        "group {group} has rows at sites {first!r} and {second!r}, but rows of a group share one "
        "expert: give groups of different sites different labels, or evaluate without site_column."
    )
    GROUP_KIND = "groups has labels that cannot be hashed ({error}): give text."
    NO_GROUPS_KNOWN = (
        "there is no column {column!r}: name it in shards_from(..., groups={column!r}), or read "
        "the shards from files that have it."
    )
    VARIANCE_AT_FLOOR = (
        "an expert fits its rows exactly, so its variance is at the floor, the likelihood has no "
        "maximum there, and there are no standard errors: use fewer experts or more rows."
    )
    NOT_AT_MAXIMUM = (
        "the model is {distance} away from the maximum of the likelihood of these rows, and "
        "standard errors are valid only there: give the rows it was fitted to, with their "
        "weights, offset and alpha; refine a model that was merged in one round, or fit all rows."
    )
    REPLIES_TOO_COARSE = (
        "sites round their replies so much that the maximum is known to {distance:.2g} standard "
        "errors only, and standard errors need a model within {bound}: use fewer experts or "
        "features, or sites with more rows, whose policies need not round as much."
    )
    SAME_EXPERT = "expert {expert} cannot be compared with itself: give two experts."
    NO_BLOCK = "the model has no block {block!r}: choose one of {choices}."
    COMBINATIONS_SHAPE = (
        "the matrix has shape {shape}, expected (m, {parameters}): a column for every free "
        "parameter, in the order of `names`."
    )
    COMBINATION_ZERO = "row {row} of the matrix is zero: it tests nothing."
    NO_EXPERT = "there is no expert {expert}: experts are numbered from 0 to {last}."
    ONE_ROUND = (
        "a model merged from one message per site has no standard errors: the local estimates "
        "share a bias of order 1/n, with n rows per site, which no information matrix measures; "
        "refine rounds remove it and provide standard errors."
    )

    # -- merging
    NO_GRAMS = (
        "site {site!r}{others} sent no Grams, and method='gram' needs them from every site: ask "
        "for them (otmoe fit --grams), or use method='reduction'."
    )
    GREEDY_TOO_MANY = (
        "greedy merging takes time cubic in the number of experts, and there are {experts}: use "
        "method='reduction', which has no such limit."
    )
    NOBODY_LEFT = (
        "every site would be left out ({sites}): look at them, and name the ones to retain in keep."
    )
    KEEP_UNKNOWN = "keep names {names}, but the messages come from {sites}; use these names."
    GROUP_FAILED = "the sites of {name} cannot be merged: {why}"
    NOT_IN_GROUPS = (
        "{name} does not apply when sites are merged in groups: leave it out, or merge all at "
        "once with group_size={sites}."
    )
    MAX_WEIGHT_WRONG = "max_weight is {value!r}; give a share above 0, or 1 for no limit."
    NOT_MERGED = (
        "the models cannot be merged ({problem}): that of site {site!r} has the largest "
        "predictions; look at it, and leave it out if it is wrong."
    )
    NO_MIDDLE = (
        "no site has {experts} experts, and the middle model is one of the local ones: choose "
        "another n_experts, or use method='reduction'."
    )
    AVERAGE_BY_COVARIATE = (
        "this method averages parameters with the same weights at every x, so "
        "site_weight='covariate' does not apply: use method='reduction', or leave site_weight "
        "out."
    )
    AVERAGE_UNEQUAL = (
        "site {site!r} has {experts} experts and {wanted} are wanted: parameters can be averaged "
        "only if all sites have the same number; use method='reduction'."
    )
    ONE_MESSAGE = "messages is a LocalModel; give a list of them."
    NO_MESSAGES = "there is no message to aggregate: give at least one LocalModel."
    SITE_TWICE = (
        "two messages come from site {site!r}, and a site may send one; rename or drop one."
    )
    WEIGHT_SHAPE = (
        "site_weight has shape {shape}, but there are {sites} messages: give one number per site."
    )
    WEIGHT_NEGATIVE = (
        "the weight of site {site!r} is {value}: give numbers that are zero or positive."
    )
    WEIGHTS_ZERO = "every site has weight zero: there is nothing to aggregate."
    WEIGHT_UNKNOWN = (
        "site_weight is {value!r}; give numbers, or 'covariate' for weights from sketches."
    )
    NO_SKETCHES = (
        "site_weight='covariate' needs a sketch from every site, and {sites} sent none: ask for "
        "them (to_message(..., X=X, sketch=True)), or leave site_weight out."
    )
    SUPPORT_SHAPE = (
        "support has shape {shape}, but the models have {features} features (site {site!r}): "
        "give an array of shape (S, {features}), without y."
    )
    SUPPORT_SHORT = (
        "support has {rows} rows for {columns} columns: give more rows than columns, preferably "
        "2,000."
    )
    SUPPORT_NOT_FINITE = "support contains NaN or infinity in row {row}: drop such rows."
    SUPPORT_UNCOVERED = (
        "no site contributes at any support point: every site has features that never varied "
        "there and differ from the support; give support points from the sites themselves."
    )
    NOT_A_MESSAGE = (
        "message {number} is a {kind}, not a LocalModel: make one with to_message() of a fitted "
        "estimator, or read one with LocalModel.load(path)."
    )
    WEIGHT_UNKNOWN_SITES = (
        "site_weight names unknown sites {names}: give one weight for each of {sites}."
    )
    WEIGHT_LACKS_SITES = "site_weight lacks the sites {names}: give one weight for each of {sites}."
    WEIGHT_NOT_NUMBERS = "site_weight must hold numbers, one per site ({error})."
    SKETCH_UNITS = (
        "the sketches of sites {site!r} and {other!r} have different units: fit all sites with "
        "the same features."
    )
    SUPPORT_COLUMNS = "support lacks the columns {missing}: the models were fitted to {features}."
    SUPPORT_NOT_NUMBERS = "support must contain only numbers ({error})."
    NO_SAMPLES = "there is no sample to draw support points from: give at least one."
    SAMPLES_EMPTY = "the samples have no rows to draw support points from: give some."
    SHARES_WRONG = "site_weight must be {sites} nonnegative numbers, not all zero."
    SUPPORT_UNKNOWN_SITES = (
        "support has covariates of {names}, which sent no message; messages came from {sites}."
    )
    SUPPORT_MISSING = (
        "support is missing: give covariates at which to compare the models, an array of shape "
        "(S, d), for example from otmoe.draw_support, or ask the sites for sketches "
        "(to_message(..., X=X, sketch=True))."
    )
    SAMPLE_COLUMNS = (
        "samples have different columns, {columns} and {others}: give the same columns in the "
        "same order."
    )
    SAMPLE_SHAPE = (
        "sample {number} has shape {shape}, but the first has {columns} columns: give arrays of "
        "shape (n_m, d) with the same columns."
    )
    FEATURES_DIFFER = (
        "site {site!r} has different features from site {other!r}: fit all sites to the same "
        "columns, in the same order."
    )

    # -- workers
    EXECUTOR_BROKE = (
        "the executor broke (a worker died): give a function that makes an executor, so that a "
        "new one can replace it."
    )
    EXECUTOR_SHUT = "the executor has been shut down; make a new one."
    RAY_NOT_STARTED = (
        "Ray has not been started: call ray.init first. otmoe does not start it for you, since "
        "Ray listens on all network interfaces of the machine."
    )
    NO_RAY = "Ray is not installed: pip install 'otmoe[ray]', or use another executor."

    # -- shards on workers
    NO_SHARDS = "there is no shard to fit: give at least one, see shards_from."
    EM_AND_REFINE = "method='em' already ends at the maximum: leave refine at 0."
    SHARD_TWICE = "two shards have this name; give each its own."
    ROUNDS_WRONG = "refine is {value!r}; give a number of rounds, or 'auto'."
    SHARD_CHANGED = (
        "its rows have changed since it was fitted ({before:.10g} rows then, {rows:,} now); fit "
        "again once nothing writes to them."
    )
    SHARD_TOO_SMALL = (
        "it has {rows} rows for {experts} experts; leave it out, or join it to another."
    )
    Y_MISSING = "give the y of the fit as well: the Grams are weighted by it."
    NO_MODEL_TO_SAVE = "a {kind} has no model to save; give a MoE or a fitted estimator."
    NO_RATIOS = (
        "coefficients of {family} experts are not on a log scale, so their exponentials are not "
        "ratios; use table(), or block='gate'."
    )
    TARGET_IS_TEXT = "the target holds text; give numbers, or fit a classifier."

    # -- sites that exchange files
    NODE_NAME = "calls itself {site}, which is not its registered name"
    NODE_EXPERTS = "sent {experts} {family} experts, but was asked for {wanted} ({wanted_family})"
    NODE_FEATURES = "sent a model with other features than requested"
    FOLDER_NOT_EMPTY = "the folder {folder} is not empty; name another as output."
    NODE_CLASSES = "sent a model with other classes than declared"
    NODE_PART = "its reply has no {part}; run the same app on all nodes"
    NO_FLOWER = (
        "Flower is not installed: pip install 'otmoe[flower]', or send the messages as files."
    )
    NODE_SLOW = "its reply is too large or in too many parts: not unpacked within {seconds:g} s"
    NODE_LATE = "no reply within {seconds:g} s"
    NODE_RENAMED = "calls itself {site}, but was {before} before"
    NO_ROWS = "it has no rows; leave it out."
    ROWS_LEFT = (
        "{dropped:,} of {total:,} rows were dropped because a value is missing{columns}, and "
        "{rows:,} are left for {experts} experts; leave these columns out, or impute the values."
    )
    NO_OPTION = "there is no option {option}; remove it."
    ROWS_PER_PARAMETER = (
        "there is no option rows-per-parameter any more; write `parameters`, the largest number of "
        "parameters for each row, into the site's policy file."
    )
    METHOD_UNKNOWN = "`method` is {value}; choose one of {choices}."
    FEATURES_FILE = "`features` must name a file written by `otmoe features`."
    NO_REFINING_HERE = "it answers no refine rounds; set refine = true in its node config."
    REQUESTS_DISAGREE = "the refine request has other features than the fit request beside it."
    ROWS_FOR_POLICY = (
        "the site's policy has to check the rows of the fit: give X and y to to_message, or "
        "policy=Policy.off() if the rows are not confidential."
    )
    IDS_FOR_POLICY = (
        "the site's policy counts people by column {column!r}: give X, y and that column (as ids) "
        "to to_message."
    )
    LEDGER_SPOILT = (
        "is damaged or was edited; set it aside, and do not answer anything that was answered "
        "before."
    )
    LEDGER_UNWRITABLE = (
        "cannot write the ledger {path}: {reason}; name a writable file with --ledger, or "
        "`ledger` in the node config."
    )
    STATEMENT_NAME = "the name of the statement {path} must end in .html (to be signed) or .json."
    OTHER_STATEMENT = "is not a statement about this message; write one with `otmoe fit`."
    RULE_UNKNOWN = "is {value}, which is not a rule of a policy; docs/policy.md lists them all."
    POLICY_REFUSES = "the site's policy says do not send: {reasons}"
    FEW_GROUPS_TO_SEND = (
        "it has {groups} groups of rows, and the scatter of fewer than {least} reveals too much "
        "about single groups; answer without it."
    )
    FEW_CLASSES_ASKED = "the request has fewer than two classes; declare all of them."
    CLASSES_ARE_NUMBERS = (
        "the target holds numbers, but the classes are declared as {label} and so on; declare the "
        "numbers."
    )
    ROUNDS_OVER = "the rounds are over: there is nothing more to ask."
    REPLIES_MISSING = (
        "round {round}: no reply from {names}; wait for it, or continue without it (allow_missing)."
    )
    NO_REPLIES = "round {round}: no reply from {names}; wait for one."
    REPLY_UNASKED = (
        "{site} is not among the sites that were asked ({sites}); leave it out, or start over "
        "with its message included."
    )
    REPLY_ROUND = (
        "replies to round {round}, which is {when}; ask {site} for its reply to round {wanted}."
    )
    REPLY_DIGEST = (
        "replies to a different request than that of round {round} (digest {digest}, not "
        "{wanted}); send {site} the request again."
    )
    REPLY_ROWS = (
        "is about {rows:.10g} rows, but {site} fitted {fitted:.10g}; answer with the same rows "
        "and weights."
    )
    REPLY_TWICE = (
        "{file} and {other} are both from site {site}; a site replies once a round, so leave one "
        "out."
    )
    NO_STEP = (
        "round {round}: no step can be computed from the replies of {sites} ({reason}); at least "
        "one of them has wrong numbers."
    )
    REPLY_TOO_LARGE = (
        "has {parameters:,} free parameters, so a reply would hold {values:,} numbers, and at "
        "most {most:,} are read; ask about fewer experts or features."
    )
    REPLY_ODD = (
        "the reply cannot be right: {why}; ask {site} to answer again, or continue without it "
        "(odd='drop')."
    )
    REPLIES_ODD = "round {round}: none of the replies can be right ({reasons})."
    REPLIES_CONTRADICT = (
        "the replies of {sites} cannot both be right: for {site}, {why}; ask both to answer "
        "again, or leave one out."
    )
    REPLY_SIZE = (
        "`{field}` has {length} numbers, but the model has {wanted} {what}; ask {site} to answer "
        "again."
    )
    NODE_ERROR = "{reason}"
    # -- secure sums
    NO_CRYPTOGRAPHY = (
        "secure sums need the package cryptography: install it with `pip install 'otmoe[secure]'`."
    )
    NOT_HEXADECIMAL = "is {value}; give {digits} lower-case hexadecimal digits."
    NOT_BASE64 = "is not base64; send the file again exactly as otmoe wrote it."
    NOT_WHOLE_NUMBERS = (
        "holds {bytes} bytes, which is not a positive multiple of {size} (one integer); send the "
        "file again."
    )
    CHECKSUM = "does not match `numbers`: the file was changed in transit; send it again."
    KEY_EXISTS = (
        "{file} already exists, and a key is never replaced; give another name, or remove it if "
        "no rounds need it any more."
    )
    NO_KEY = "there is no key {file}; give the file that `otmoe fit --secure` wrote."
    NOT_A_KEY = "{file} is not a private key; give the file that `otmoe fit --secure` wrote."
    ROSTER_NO_KEY = (
        "no public key in the message of {names}; have them fit again with --secure, or leave "
        "them out."
    )
    ROSTER_SMALL = (
        "has {sites} sites; a sum over fewer than {least} does not hide a site's part from the "
        "others."
    )
    ROSTER_SAME_KEY = (
        "has the same key for {one} and {other}; each site must make its own, so have one of them "
        "fit again."
    )
    ROSTER_BAD_KEY = "the roster's key for {site} is not a valid X25519 key; do not answer."
    ROSTER_WITHOUT_ME = (
        "the roster of the request does not list {site} with the key of this site ({key}...); do "
        "not answer, and ask the server which key it has."
    )
    ROSTER_CHANGED = (
        "the request has a different roster ({roster}: {names}) from the one this site answered "
        "before ({before}); the difference between sums over the two would reveal the sites that "
        "are in only one of them, so answer with --new-roster only if these have dropped out or "
        "agree."
    )
    ROSTER_MISSING = (
        "there is no roster, so a reply could be read on its own; start the rounds with --secure, "
        "or answer without a key."
    )
    ROSTER_NOT_IN = (
        "{site} cannot be left out of the roster ({names}); name at least one of its sites."
    )
    SECURE_REQUEST = (
        "the request asks for masked replies; answer it with the key of this site (--key)."
    )
    SECURE_SCATTER = (
        "the request asks for the scatter, and in a secure sum all sites must send the same "
        "parts; have {site} answer with --scatter, or start the rounds without --sandwich."
    )
    SECURE_BETWEEN = (
        "differences between sites cannot be estimated from a secure sum, which hides each site's "
        "reply; choose one of --between and --secure."
    )
    SECURE_WITHOUT_ROUNDS = "secure sums are taken in refine rounds; set refine as well."
    SECURE_MISSING = (
        "round {round}: no reply from {names}, without which the sum of the others cannot be "
        "unmasked; wait for it, or start again without it (`otmoe refine again`)."
    )
    QUESTION_AGAIN = (
        "this site has already answered the question {digest}, for another roster or round; a "
        "second answer could be compared with the first, so the server has to ask a different "
        "one."
    )
    ANSWER_CHANGED = (
        "this site has already answered the question {digest}, from other rows, and two replies "
        "under the same masks reveal their difference; answer with the rows used the first time."
    )
    REPLY_NOT_MASKED = (
        "is a plain reply, but the rounds were started with --secure; answer with --key."
    )
    REPLY_CONTEXT = (
        "was masked for a different request than that of round {round}; send {site} the request "
        "again."
    )
    MASKED_SIZE = (
        "`numbers` holds {length} integers, but the request asks for {wanted}; ask {site} to "
        "answer again."
    )
    MASKS_REMAIN = (
        "round {round}: the masks of {names} do not cancel, so one of them used another roster or "
        "key; compare the fingerprints that `otmoe refine answer` printed."
    )
    TOO_LARGE_TO_MASK = (
        "a sum over the rows is not a number or exceeds {most:.3g}, the largest that can be "
        "masked; look for outlying values of the features."
    )
    STATE_ROSTER = "lists other sites than `sites`; fix it."
    ROUNDS_FIELD = 'is {value}; give a number of rounds, or "auto".'

    # -- data sets
    DATASET_NOT_THERE = (
        "there is no {files} in {folder} or its folders {places}: put the data set there, or set "
        "{variable} to another folder."
    )
    NO_DATA_FOLDER = "no folder of data sets is given: pass one, or set {variable}."
    NOT_A_FOLDER = "{folder} is not a folder: pass another, or set {variable}."
    PERSON_INCOMPLETE = "{path} is missing: each person needs Actigraph.csv and RR.csv."
    PERSON_WITHOUT_BEATS = (
        "person {person} has no inter-beat interval between {low} and {high} s: leave this "
        "person out."
    )
    NO_TRUTH_FOUND = (
        "none of {tries} random truths gave each of {experts} experts its share of rows: use "
        "fewer experts, more features or a larger softness."
    )
    SOFTNESS = "softness is {value}; give a number between 0 (hard) and 1 (soft)."
    OVERLAP_FAMILY = "overlap=True is for Gaussian data only; leave it out for other families."
    TOO_SMALL = "{name} is {value}; give at least {least}."
    DATASET_UNREADABLE = "cannot be read: {error}"

    # -- estimators
    FEWER_ROWS_THAN_EXPERTS = (
        "n_samples={rows} is less than n_experts={experts}: give more rows (of positive weight), "
        "or use fewer experts."
    )
    GATE_FEATURES_TEXT = (
        "{argument} is {value!r}; give None (all features), 'intercept', or a list of feature "
        "names or indices."
    )
    NO_FIT_TO_SEND = (
        "this estimator was made from a model and has not been fitted to rows, so there is no fit "
        "to report: call fit first, or write the model alone with otmoe.save_model."
    )
    X_MISSING = "X is missing: rows are not kept after fit, so pass them again."
    NEGATIVE = "{name} is {value!r}; give a number that is zero or positive."
    GATE_FEATURE_NAME = "{argument} names {name!r}, but the columns are {columns}."
    GATE_FEATURE_UNNAMED = "{argument} names {name!r}, but X has no column names."
    GATE_FEATURE_INDEX = "{argument} has {value!r}; indices run from 0 to {last}."
    EXPERT_FEATURES_COUNT = (
        "expert_features has features for {sets} experts, but {experts} experts use features: give "
        "one set for each (none for a zero expert), or one list for all."
    )
    EXPERT_WITHOUT_COLUMNS = (
        "{argument} has '-intercept' and no feature, which leaves nothing to fit: list the "
        "features that the expert uses."
    )
    EXPERT_NAMES_DIFFER = (
        "expert_features names the experts differently for two responses ({names}); give the same "
        "names in the same order."
    )
    RESPONSE_UNKNOWN = (
        "expert_features names {name!r}, which is not a response ({responses}); give features by "
        "response or by expert, not both at one level."
    )
    KL_OF_GROUPS = (
        "method='kl' compares densities of single rows, but rows of a group share one expert: use "
        "method='auto', 'gram' or 'reduction', and refine rounds for the exact answer."
    )
    SHARING_DIFFERS = (
        "{who} has one expert per {own}, but {other} one per {wanted}: fit all sites with the same "
        "expert_per."
    )
    PERSONAL_SHARED = (
        "models for single sites are not available when rows of a group share one expert: fit "
        "without personal, or use expert_per='row'."
    )
    GROUP_IN_TWO_SHARDS = (
        "group {group} has rows in shards {first!r} and {second!r}, but rows of a group share one "
        "expert: move them into one shard."
    )
    ORIGIN_CONSTANT = (
        "feature {feature!r} is {value:g} in every row, and an expert without an intercept uses it "
        "(it would be the intercept): leave the feature out, or let the expert have an intercept."
    )
    PERSONAL_STRUCTURE = (
        "personal models need experts whose coefficients are all free; leave out expert_features, "
        "common and common_variance, or fit only the common model."
    )
    ZERO_OF_COUNTS = (
        "zero_expert=True is for counts, not for {family}: take poisson or negative_binomial, "
        "or leave it out."
    )
    ZERO_ALONE = (
        "the zero expert is one of n_experts, and there is no other: give n_experts=2 or more."
    )
    NOT_A_ZERO = (
        "belongs to an expert without columns, which is always 0: its intercept must be "
        "{intercept:g} and its other coefficients 0; fix it."
    )
    CLASSES_AMONG_RESPONSES = (
        "the model ({family}) has classes among several responses, which no policy can judge: ask "
        "for a model of numbers and counts, or for the classes alone."
    )
    FAMILIES_COUNT = (
        "the target names the responses {responses}, but family is {families}; give one family for "
        "each response."
    )
    COMMON_TEXT = "common is {value!r}; give a list of feature names or indices."
    COMMON_UNSEEN = "common has {name!r}, which no expert sees; add it to expert_features."
    NO_COMMON_VARIANCE = (
        "common_variance=True asks for one variance, but {family} experts have none; leave it out."
    )
    ONE_CLASS_IN_Y = (
        "y has only one class ({label!r}), and a classifier needs at least two; if these rows "
        "lack some classes, declare all of them with classes=[...]."
    )
    NOT_A_CLASSIFIER = "the model has no class labels: it is not a classifier."
    ONE_CLASS_DECLARED = "classes is {classes!r}; declare at least two."
    MERGED_NOT_LOCAL = (
        "a merged model is not a local model: send the messages in local_models_, or save the "
        "merged one with otmoe.save_model(est.model_, path)."
    )

    # -- evaluation
    NO_ROWS_TO_EVALUATE = "there are no rows to evaluate the model on; give some."
    OTHER_FEATURES = (
        "the features are not those of the model; give the FeatureSpec it was fitted with."
    )
    QUANTILES_OF_CLASSES = "quantiles are for numeric responses, and this model is a classifier."
    PROBA_OF_NUMBERS = "proba is for classes, and this model is a regression."
    OUTPUT_COLUMN_TWICE = "the output would have two columns {column!r}; keep a different one."

    # -- the report
    NO_REPORT = (
        "source is a {kind}; give an Aggregation, such as est.aggregation_, an MoE, or the path "
        "of a model file."
    )

    # -- how many experts
    ELBOW_ON_ROWS = (
        "the elbow is defined for merged models: use select_over_shards or select_from_messages, "
        "or choose by 'bic'."
    )
    ELBOW_TOO_FEW = (
        "n_experts is {numbers}: an elbow needs a smaller and a larger number to compare with; "
        "give at least three numbers of experts, or choose by 'bic' or, from messages alone, by "
        "'expected_bic'."
    )
    ONE_NUMBER = "n_experts is {value}; give several numbers, such as range(1, 7)."
    NO_NUMBERS = "n_experts is empty; give the numbers of experts to try."
    NO_SCORES = "there are no answers: ask at least one site."
    NO_ELBOW = (
        "the elbow is a bend in R_c, which only merged models have, and needs a smaller and a "
        "larger number of experts: merge local models to at least three numbers, or choose by "
        "'bic'."
    )
    NO_EXPECTATION = (
        "{criterion!r} is defined for merged models, from their expected loss relative to the "
        "sites' own: use select_over_shards or select_from_messages, or choose by 'bic'."
    )
    EXPECTED_BIC_OF_GROUPS = (
        "criterion='expected_bic' compares densities of single rows, but rows of a group share one "
        "expert: use 'bic' or 'icl' where the rows are, or 'elbow' for messages."
    )
    NOT_CROSS_VALIDATED = (
        "{criterion!r} needs fits without some of the rows: use "
        "select_n_experts(..., criterion='cv') with rows in memory, or choose by 'bic'."
    )
    FOLDS_RANGE = (
        "folds is {folds}, but must be from 2 to {most}, the number of rows or groups that can be "
        "held out."
    )
    NO_LIKELIHOODS = (
        "{criterion!r} needs the log-likelihood of all rows: ask the sites (candidate_scores) and "
        "combine their answers with scored, or choose by 'elbow'."
    )
    SCORES_COUNT = (
        "site {site!r} answered about {models} models but was asked about {wanted}: ask it again."
    )

    # -- plots
    NO_MODEL_TO_PLOT = (
        "a {kind} has no mixture of experts: give a fitted estimator, an aggregation, or a model."
    )
    FEATURE_NAME = "there is no feature {feature!r}; the model has {features}."
    FEATURE_INDEX = "there is no feature {feature}; features are numbered from 0 to {last}."
    PARAMETER_INDEX = "there is no parameter {parameter}; they are numbered from 0 to {last}."
    AXES = "ax has {axes} axes, but {wanted} are needed: give {wanted}, or None."
    NO_MATPLOTLIB = (
        "plots need matplotlib, which is not installed ({error}): pip install 'otmoe[plot]'."
    )
    NO_GATE = "a model with one expert has no gate to show."
    NO_FLOW = (
        "the ensemble keeps the experts of every site, so no mass flows: merge with another method."
    )
    NO_COEFFICIENTS = (
        "a mixture of several models has no coefficients of its own: look at those of the models "
        "that it is made of."
    )
    TWO_FEATURES = "features is {value!r}; give two of them."
    NO_RESIDUALS = (
        "residuals of classes are not informative: use DensityDisplay, or the errors in "
        "otmoe.evaluation."
    )
    NO_FIT_TO_PLOT = (
        "a {kind} has no fit to rows: give a fitted MoERegressor or MoEClassifier, or use "
        "from_aggregation."
    )
    NO_ITERATIONS = "method {method!r} has no iterations to show."
    NO_ROUNDS = "there were no refine rounds: leave refine out, or refine first."

    # -- the shell
    SHELL_OVERRIDE = "--override and --reason must be given together: say which rule, and why."
    SHELL_NO_SUPPORT = (
        "there are no points at which to compare the models: give rows of covariates with "
        "--support, or ask the sites to fit with --sketch."
    )
    OUTPUT_FOLDER = "{path} is a folder; give the name of a file."
    OUTPUT_NO_FILE = "{path} is a pipe or a device, not a file; give the name of a file."
    OUTPUT_UNWRITABLE = "{path} cannot be written: {why}; choose a folder you can write to."
    OUTPUT_APPEARED = (
        "{path} was created by something else in the meantime and was not replaced; the output is "
        "in {other}."
    )
    NO_PLAIN_FILE = (
        "is a named pipe, a device or a socket, not a file; save its contents as a file."
    )
    OUTPUT_EXISTS = "{path} already exists; give another name, or replace it with --force."
    NO_FOLDER = "the folder {folder} does not exist; create it first."
    KEEP_NO_FOLDER = "{path} is a file, and local fits are kept in a folder: give another name."
    SHELL_RAY_LISTENS = (
        "a Ray started here would listen on all network interfaces of this machine and run what "
        "it is sent; give the --address of one that runs behind a firewall, or use --executor "
        "local or dask."
    )
    SHELL_NO_ENGINE = (
        "--executor {executor} needs a package that is not installed ({error}); install it with "
        "pip install 'otmoe[{executor}]', or use --executor local."
    )
    SHELL_ROLES = "target, weight and site cannot be features; remove them from --columns."
    SHELL_START_OR = (
        "{option} does not go with --start, whose model already determines it: leave it out."
    )
    SHELL_EXPERTS = "give --experts, or a model to start from with --start."
    SHELL_CLASSES_FAMILY = "--classes needs --family classes."
    SHELL_ONE_CLASS = "--classes has only one class; declare at least two."
    SHELL_FEW_CLASSES = (
        "the target has fewer than two classes{dropped}; if other sites have more, declare all of "
        "them with --classes."
    )
    SHELL_CLASSES_NUMBERS = (
        "column {column!r} holds numbers, but --classes has names: {classes}; give the numbers."
    )
    UNREADABLE_MESSAGES = "{bad} of {messages} messages cannot be read{hint}: {reasons}"
    SHELL_EXCLUDES_ALL = "--exclude leaves no site to merge."
    FILES_OF_ONE_SITE = (
        "{file} and {other} both come from site {site!r}; a site may send one message, so leave "
        "one out."
    )
    SHELL_EXCLUDE_UNKNOWN = (
        "--exclude {site}: no message is from that site; messages are from {sites}."
    )
    SHELL_NO_TARGET = "--target is missing; name the response column, or give --formula."
    SHELL_EVALUATE_TARGET = "{model} does not name the response; give its column with --target."
    SHELL_FORMULA_OR = "--formula and {option} are both given; give one of them."
    SHELL_SEVERAL_CLASSES = (
        "--target names several responses ({responses}), which cannot be classes; use families of "
        "numbers, or one target."
    )
    SHELL_EXPERT_FEATURES = (
        "--expert-features is {value!r}; to give it for each expert, write each expert's name "
        "first and once, as in rising=hour,month."
    )
    SHELL_FORMULA_TARGET = (
        "--formula has the response {formula!r} and --target is {target!r}; give one of them."
    )
    SHELL_SPLINE = "--spline is {value!r}; give a column and degrees of freedom, as in hour:5."
    SHELL_OF_DATA = (
        "{option} is for data: messages already say how their columns become features. Leave it "
        "out, or run the command where the data are."
    )
    SHELL_NO_SKETCHES = (
        "no message has a sketch or rows, from which the knots of {terms} would come: ask the "
        "sites for messages with a sketch (otmoe fit --sketch)."
    )
    SHELL_INTERACTION = "--interaction is {value!r}; give two columns, as in dep:origin."
    SHELL_FEATURES_OR_COLUMNS = "give --features or --columns, not both."
    SHELL_TARGET_OR_COLUMNS = (
        "say which columns are features: all but --target, or those in --columns."
    )
    SHELL_NOT_REMEMBERED = (
        "there is no {local} beside {file} (it stays where `otmoe fit` wrote it); give --target, "
        "--site and the rows instead."
    )
    SHELL_LOCAL_WRONG = (
        "{file} cannot be read ({reason}); give --target, --site and the rows instead of --fit."
    )
    SHELL_ANSWER_LACKS = "{lacking} is missing: give it, or the site's message with --fit."
    SHELL_NO_COLUMNS = "{file} does not describe columns; name them with --columns."
    SHELL_SITE_OR_CUT = "with --site-column the sites are the shards; leave out --cut."
    SHELL_ADDRESS = "--address is for a cluster; give --executor dask or ray as well."
    SHELL_RENAMED = "{old} is now called {new}."
    SHELL_NO_PRIOR = (
        "this file has no estimate of how sites differ: start with `otmoe refine start --between "
        "auto`, and use the model file that the last step writes."
    )
    SHELL_GROUPS_OF_PERSONAL = (
        "--groups is for the comparison of sites: give --personal, too. For groups whose rows "
        "share an expert, use --expert-per."
    )
    SHELL_SITE_OF_COLUMN = "--site-column needs --site: say which site's rows to use."
    SHELL_TWO_FILES = "--state and --output are the same file; give two."
    SHELL_ROUNDS_OVER = "the rounds are over; {status}."
    SHELL_ONE_FORM = "give one of --csv, --html and --json."
    SHELL_FORM_OF_FILE = (
        "-o needs --csv or --html, or a name ending in .csv or .html, to say what to write."
    )
    SHELL_THREE_FILES = (
        "state, request and model must be three different files; give each its own name."
    )
    SHELL_FILES_ROWS = "--files is {files}, but there are only {rows} rows."
    SHELL_FILES_FOLDER = "{path} is a file; with --files, give the name of a folder."
    FOLDER_IN_USE = "the folder {folder} contains other files; give another name."
    FITS_FAILED = "{count} of the fits failed: {failures}"
