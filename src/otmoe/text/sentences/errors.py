# Long because one file holds the sentences of all errors: so that prose can be improved, and the
# same thing is said in the same words everywhere.
"""What is wrong and what to do: the sentences of all errors."""

from enum import unique

from otmoe.text.notices import Sentence


@unique
class Error(Sentence):
    """Errors by code.

    A sentence about a field of a document goes on from its path: "`model.gate.coef` is empty; ...".
    """

    # -- arguments, fields and files
    CLASS_UNKNOWN = (
        "y has the class {label!r}, which is not among the classes {classes}: declare all with "
        "classes=[...]."
    )
    ROWS_WITHOUT_WEIGHT = "sample_weight is zero for every row: there is nothing to fit."
    RENAMED = "{function}: the argument {old} is called {new} now."
    NOT_WHOLE = "{name} is {value!r}; give a whole number of at least 1."
    WEIGHT_OF_ROW = (
        "sample_weight is negative in row {row} ({value:g}): weights count rows, give zero or more."
    )
    RESPONSE_TOO_LARGE = (
        "y is {value:g} in row {row}: no fit holds numbers beyond {most:g}; leave the row out, or "
        "give y in other units."
    )
    NOT_COUNTS = (
        "y is {value:g} in row {row}: the {family} family takes {numbers} from {lowest:g} to "
        "{highest:g}."
    )
    NOT_POSITIVE = (
        "y is 0 in row {row}: the gamma family takes positive numbers; leave such rows out, or fit "
        "another family."
    )
    ONE_PER_ROW = "{name}.shape == {shape}, expected {wanted}: one number per row of X."
    NO_PANDAS = (
        "coefficient tables need pandas: install it with `pip install 'otmoe[pandas]'`, or read "
        "the arrays model_.experts.coef and model_.gate.coef."
    )
    NO_FRAME = (
        "tables of how sites differ need pandas: install it with `pip install 'otmoe[pandas]'`, or "
        "read between.coefficients(), between.spreads and between.sites."
    )
    NO_FEATURE_FRAME = (
        "a data frame needs pandas: install it with `pip install 'otmoe[pandas]'`, or use X and "
        "feature_names."
    )
    PARAMETER_POSITION = (
        "there is no parameter {position}; give a position from 0 to {last}, or a term."
    )
    NO_FOLDER_TO_WRITE = "cannot write {file}: there is no folder {folder}; make it first."
    SCHEMA_VERSION = (
        "is {version}; this version of otmoe reads {known}: update otmoe, or ask for the file in "
        "version {known}."
    )
    SECOND_TIME = "is {value} a second time; give each once."
    LIMIT = (
        "has {what}; if it should, read it with limits=otmoe.Limits({limit}=...) and a larger "
        "number."
    )
    NOT_TEXT = "the text is a {kind}; give str or bytes, or the path of a file to `load`."
    KEY_TWICE = "occurs twice; keep one of the two."
    NOT_AN_OBJECT = "holds {value}; an otmoe file is one JSON object, in braces."
    NOT_UTF8 = "byte {byte} is not UTF-8 text; save the file as UTF-8 JSON."
    TOO_DEEP = (
        "lists or objects lie too deep inside each other; no otmoe file is like this, so ask for "
        "it again."
    )
    LABEL_KIND = "is {value}; give text, a number, true or false."
    SITE_UNNAMED = "is empty; give the site a name."
    NAME_TOO_LONG = "has {length} characters; give a name of at most {most}."
    INVISIBLE_CHARACTER = (
        "has the character U+{character}, which nobody sees; write the name without it."
    )
    NAMES_MEET = "has two keys that are the same name in different spellings; keep one."
    LOOK_ALIKE = (
        "{name} looks like {other}, which is another name; write both with letters of one alphabet."
    )
    CONTROL_CHARACTER = "holds the control character U+{character}; remove it."
    FIELD_MISSING = "is missing; add it."
    FIELD_UNKNOWN = (
        "is not a field of schema version {version}; remove it, or update otmoe if a newer one "
        "wrote it."
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
    JSON_INVALID = "is not valid JSON ({reason}); ask for it again."
    TEXT_IN_X = (
        "{columns} {hold} text: encode it as numbers first, for example with OneHotEncoder "
        "({error})."
    )

    # -- tables, columns, shards, sketches
    NOT_ONE_OF = "{name} is {value!r}; choose one of {choices}."
    PRIOR_WRONG = (
        "the deviation between sites of {name!r} is no number of at least 0 for one of {choices}."
    )
    NO_SPREAD = (
        "how sites differ cannot be said: {sites} sent no scatter of scores; ask for it, or leave "
        "these sites out."
    )
    BETWEEN_WITHOUT_ROUNDS = (
        "`between` is about what nodes say in refine rounds, and there are none; ask for them, as "
        'in refine = "auto".'
    )
    ONE_SITE_ALONE = "how sites differ cannot be said of one site; ask two or more."
    NO_DIFFERENCES = (
        "how sites differ cannot be worked out from the replies of {sites}: {reason}. Ask these "
        "sites again, or leave out what they have too few rows for."
    )
    STEP_BACK_NO_SPREAD = (
        "how sites differ cannot be said: the last step was taken back, and the replies are about "
        "it; refine on with more rounds."
    )
    NOT_PERSONAL = (
        "this estimator has no models for single sites: fit it with personal='auto' and say which "
        "site each row belongs to."
    )
    SITE_UNKNOWN = "there is no site {site!r}; choose one of {sites}."
    NO_MATCH = "no file matches {pattern}; check the folder and the pattern."
    NOT_A_MATRIX = "{name} has shape {shape}; give an array of shape (n, d)."
    SKETCH_ROWS = (
        "X has {rows:.3g} rows (counted by weight), and a sketch needs {least}: a mean over "
        "fewer says too much about each of them; send no sketch."
    )
    NOT_FINITE = "X holds NaN or infinity: drop such rows, or fill the gaps."
    SAMPLE_LACKS_COLUMN = (
        "column {column!r} is missing in all {rows} rows of the sample; leave it out by "
        "`columns`, or give a sample that has it."
    )
    FEW_LEVELS = "has to list two levels or more; add them."
    NO_FEATURE = (
        "column {column!r} holds {kind}, which is no feature; turn it into numbers or text, or "
        "leave it out by `columns`."
    )
    MANY_LEVELS = (
        "column {column!r} has {levels} different values, and max_levels is {most}; leave it "
        "out, merge some of them, or raise max_levels."
    )
    ONE_LEVEL = (
        "column {column!r} has the value {value} throughout the sample; leave it out, "
        "or give a sample with all its values."
    )
    SAMPLE_EMPTY = "the sample has no rows; give some."
    WRONG_KIND_OF_COLUMN = "does not go with a {kind}; remove it."
    NOT_A_TERM = "features: {value} is no term; give a Spline or an Interaction."
    WRONG_KIND_OF_TERM = "does not go with a term of kind {kind}; remove it."
    SPLINE_OF_NO_NUMBER = (
        "a spline is asked of {column}, which is no number among the columns; name one that is."
    )
    SPLINE_DF = (
        "the spline of column {column!r} is asked to have {df} degrees of freedom; give {least} to "
        "{most}, the slope included."
    )
    SPLINE_FEW_VALUES = (
        "column {column!r} has {values} different values in the sample, too few for a spline with "
        "{df} degrees of freedom; give fewer degrees, or leave the column as it is."
    )
    KNOTS_COUNT = "has {knots} knots; give {least} to {most}."
    KNOTS_CLOSE = (
        "has knots that do not increase, or that nearly coincide; list different values in "
        "increasing order."
    )
    INTERACTION_PARTS = (
        "is {parts}; name two different columns, or a column and a spline listed before."
    )
    INTERACTION_UNKNOWN = (
        "names {name}, which is neither a column nor a spline listed before; add it, or correct "
        "the name."
    )
    FORMULA_UNREADABLE = "the formula {formula!r} needs {wanted} at {found}; correct it there."
    FORMULA_NO_TEXT = "the formula is a {kind}; give text such as 'y ~ a + b | c'."
    FORMULA_FUNCTION = (
        "the formula has {name}(...), and spline(column, df) is the only function; compute other "
        "columns before."
    )
    FORMULA_THREE = (
        "the formula {formula!r} has a product of more than two columns; write products of two."
    )
    FORMULA_SQUARE = (
        "the formula has a product of column {column!r} with itself; write spline({column}) for a "
        "curve."
    )
    FORMULA_TWO_DF = (
        "the formula has splines of column {column!r} with {df} and with {other} degrees of "
        "freedom; a column has one set of knots, so give one number."
    )
    FORMULA_NO_COLUMNS = "the formula names no column; a model has at least one feature."
    FORMULA_NO_TARGET = "the formula has no response; write its column and ~ before the features."
    FORMULA_OTHER_FEATURES = (
        "{name!r} is in the {who} alone; make the file of features from the same formula."
    )
    FORMULA_TARGET_TWICE = (
        "the formula has the response {column!r} among the features; leave it out there."
    )
    MANY_DERIVED = (
        "make {features} features, and {most} is the limit; take interactions of columns with "
        "fewer levels."
    )
    NO_COLUMNS = "is empty; give at least one column."
    FEATURES_INSIDE = "is {kind}; read its features with otmoe.load_features."
    OTHER_DOCUMENT = "is {kind}; give a file of {wanted}."
    COLUMN_EMPTY = "column {column!r} is missing in all {rows} rows; leave it out, or fix it."
    COLUMN_MISSING = (
        "values are missing in some of {rows} rows: {columns}; drop these rows (missing='drop'), "
        "or let the features say what stands for them (FeatureSpec.from_sample(..., "
        "missing='indicator'))."
    )
    GAPS_IN_X = (
        "Input X contains NaN in some of {rows} rows: {columns}; drop these rows, or encode a "
        "table by FeatureSpec.from_sample(table, missing='indicator'), which fills in means and "
        "adds indicators."
    )
    COLUMN_INFINITE = "column {column!r} is infinite in {count} rows; fix them."
    COLUMN_NEGATIVE = (
        "column {column!r}, the weight, is negative in {count} rows; give zero or more."
    )
    COLUMN_LEVELS = (
        "column {column!r} has values that are none of its levels: {values}{more}; add them to "
        'the levels, or set unknown to "reference".'
    )
    NOT_A_COLUMN = (
        "features: {value} is no Column; make one of it, or use FeatureSpec.of_names for plain "
        "numbers."
    )
    TARGET_MISSING = "target is missing; give the name of the column with the response."
    ROLES_SHARED = "target, weight and site are {columns}; give each a column of its own."
    CUT_WRONG = 'cut is {value!r}; give "file", "row_group" or a whole number above 0.'
    SITE_AND_CUT = "site and cut are both given; the sites are the shards, so leave out cut."
    ARRAYS_HAVE_NO_COLUMNS = "target, weight and site are names of columns; arrays have none."
    TARGET_KIND = (
        "column {column!r}, the target, holds {kind}; give numbers, or text for a classifier."
    )
    FILE_KIND = (
        "{path} is no Parquet, CSV, Feather or Arrow file: its name ends in none of {endings}; "
        "rename or convert it."
    )
    NO_FILES = "data is an empty list; give at least one file."
    FOLDER_EMPTY = "the folder {folder} has no data files, whose names end in {endings}; check it."
    FOLDER_MIXED = (
        "the folder {folder} has both Parquet and CSV files; say which you mean by a pattern "
        "such as folder/*.parquet."
    )
    UNREADABLE = "cannot be read: {reason}; fix it, or leave it out."
    UNREACHABLE = "{path} cannot be reached: {reason}; check it."
    NOT_A_FILE = (
        "data has a {kind} among its files; give paths, or one frame, or the arrays (X, y)."
    )
    NOT_THERE = "there is no file or folder {path}; check the name."
    ROWS_CHANGED = (
        "{counted} rows were counted when the shards were made, and {found} are read now: the "
        "files have changed; make the shards again."
    )
    TARGET_TEXT = "column {column!r}, the target, holds text where numbers are meant; fix it."
    CUT_TOO_FINE = "cut is {cut}, but there are {rows} rows; give a smaller number."
    FEATURES_TEXT = "features is {value!r}; give a list of names, or a FeatureSpec."
    SITE_MISSING = "column {column!r}, the site, is missing in {count} rows; fill it in."
    TUPLE_SIZE = "data is a tuple of {size}; give (X, y) or (X, y, weight)."
    NO_ROW_GROUPS = "rows in memory have no row groups; give a number of shards as cut."
    ROLE_AS_FEATURE = "column {column!r} cannot be a feature as well; leave it out of them."
    FEATURES_OF_ARRAY = "features are about named columns, and X is an array; leave them out."
    LENGTHS_DIFFER = (
        "{name} has {rows} rows and {other} has {others}: give equally many, at least one."
    )
    FILES_DISAGREE = "the files do not agree on their columns: {reason}; fix them."
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
        "column {column!r} holds {kind} where numbers are meant; fix the column, or make it a "
        "category in the features."
    )
    NO_COLUMN = "there is no column {column!r}; {hint}there are {columns}."
    ONE_COLUMN = (
        "there is no column {column!r}, and the only one is {only!r}: another character than those "
        "that otmoe looks for (comma, semicolon, tab, bar) separates the columns; give it as sep."
    )
    STRAY_MARK = (
        "column {column!r} holds numbers, but {mark!r} in some rows: leave these cells empty, so "
        "that they count as missing."
    )
    COLUMN_TWICE = "there are two columns {column!r}; rename or remove one."
    TABLE_UNREADABLE = "the table cannot be read: {reason}."
    NOT_A_CATEGORY = "column {column!r} holds {kind} where a category is meant; turn it into text."
    KINDS_DIFFER = "column {column!r} holds {kind} where other files hold {other}; make them agree."
    FRACTIONS = (
        "column {column!r} holds fractions where a category is meant; fix the column, or make it "
        "a number in the features."
    )
    REFERENCE_UNKNOWN = "is {value}, which is none of the levels; give one of them."
    FILE_TWICE = "{file} is given twice; its rows would count twice, so name it once."
    SAME_FILE = "{file} and {other} are the same file; name it once."

    # -- documents
    NO_SITES_MERGED = "is empty; a model is merged of one site at least."
    SUM_NOT_ONE = "adds up to {total:.6g}; give shares that add up to 1."
    LENGTH = "has {length} entries; give {wanted}."
    GATE_WITHOUT_FILE = "the gate is a {kind}; only models with a SoftmaxGate have a file format."
    SHARE_WRONG = "share is {value!r}; give a whole number from 0 to {most}."
    MODEL_WITHOUT_SITE = (
        'is "model", a model without a site or a number of rows; read it with '
        "otmoe.load_model, or ask the site for its message."
    )
    OTHER_ROWS = (
        "X has {rows:g} rows (the sum of their weights), but the fit had {fitted:g}: give the "
        "rows and the weights of the fit."
    )
    KIND_MISSING = "is {kind}; an otmoe file says there what it is."
    LENGTH_OF_MODEL = (
        "has {length} entries; give {wanted}, to agree with the start of `model.experts.coef`."
    )
    NOT_ZERO = "is {value}; give 0: {reason}."
    GATE_WITHOUT_INTERCEPT = "lacks 0, the intercept; add it."
    NO_CLASSES_HERE = "is a list, but this family has no classes; give null."
    LENGTH_OF_CLASSES = "has {length} labels; give {wanted}, as the experts have."
    CLASSES_MIXED = "mixes types or has too large numbers; give labels of one type."
    FEATURES_COUNT = "makes {features} features, but the model has {wanted}; fix it."
    ONE_CLASS = "has a row for one class; give two or more."
    LENGTH_OF_NAMES = (
        "has {length} names; give {wanted}, one for each coefficient after the intercept."
    )
    EMPTY = "is empty; give coefficients."
    GATE_COLUMN = "is {value}; columns go from 0 to {last}."
    STRUCTURE_COUNT = "has {length} entries for {experts} experts; give one, or one for each."
    NOT_COMMON = "differs between experts, though `{field}` says it is the same; give one number."
    NOT_A_FEATURE = "is no feature of the model; use the names of the model."
    LENGTH_FOR_EACH = "has {length} numbers; give {wanted}, one for each {what}."
    TRIANGLE = "has {length} numbers; the upper triangle of {size} x {size} has {wanted}."
    SUM_NOT_ROWS = "adds up to {total:g}, but n_samples is {rows:g}; fix it."
    GROUPS_ABOVE_ROWS = "is {value}, but there are {rows} rows; fix it."
    OTHER_PARAMETERS = (
        "is a model of another kind or size than `model`; give one with the same family, experts, "
        "features and classes."
    )
    BLOCKS_OF_MODEL = "is not one entry for each of {wanted}, in this order; fix it."
    PARAMETERS_OF_BLOCK = "is {value}, but the model has {wanted} of them; fix it."
    TAU_OF_PRIOR = "is {value}, but `between.prior.tau` says {other}; make them agree."
    NO_PERSONAL_MODEL = (
        "leads to a model with coefficients beyond 1e30, or a variance beyond 1e60 or below 1e-60; "
        "ask for the file again."
    )
    NOT_A_SCATTER = (
        "is no sum of products of as many scores, which add up to `score`; write its upper "
        "triangle row by row."
    )
    DIGEST = "is not that of the model beside it; ask for the file again."
    NO_SITES_ASKED = "is empty; name the sites that are asked."
    STATE_INCOMPLETE = "and `pooled` are there once a round has been answered; fix it."
    STATE_SITES = "holds others than `sites`, or nobody; fix it."
    STATE_MISSING = "is no site or no round so far; fix it."
    SKETCH_OF_OTHER_FEATURES = (
        "the sketch has {features} features, but the model has {wanted}: sketch the rows of the "
        "fit."
    )
    NAMES_NO_FEATURE = "names {name}, which is no feature of the model."
    NAMED_TWICE = "names {name} a second time; give each feature once."
    NAMES_NO_NUMBER = "names {name}, which is no number; fix it."
    FAMILY_DIFFERS = (
        "{who} has {family} experts, but {other} has {wanted} ones: only models of one family go "
        "together."
    )
    N_FEATURES_DIFFER = (
        "{who} has {features} features, but {other} has {wanted}: fit all sites to the same "
        "columns."
    )
    NAMES_MISSING = (
        "{who} has no feature names, but {other} has: fit all sites to frames with the same "
        "columns."
    )
    NAMES_ORDER = (
        "{who} has the features of {other} in another order (feature {place} is {name} instead "
        "of {wanted}): fit it to the columns in the same order."
    )
    NAMES_DIFFER = (
        "{who} has the features {extra} where {other} has {missing}: fit all sites to the same "
        "columns."
    )
    STRUCTURE_DIFFERS = (
        "{who} and {other} were fitted with other restrictions ({what}); fit all sites with the "
        "same expert_features, common and common_variance."
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
    LOW_ABOVE_HIGH = "is {low}, above `high`, {high}; fix it."
    FAMILY_UNKNOWN = (
        "is {name}; this version of otmoe knows {known}: use one of these, or update it."
    )
    SUPPORT_ROWS = "has {rows} rows; give 1 to {most}, or leave it out."
    LABEL_TOO_LONG = "has {length} characters; give a label of at most {most}."
    FEATURES_OTHER = "makes {name} where `model.feature_names` has {wanted}; fix it."
    LENGTH_OF_FEATURES = "has {length} entries; give {wanted}, one for each feature of the model."
    ROWS_OF_SKETCH = "has {rows} rows; give {wanted}, one for each entry of `sketch.weight`."
    NOT_A_COVARIANCE = (
        "is not positive definite; give the upper triangle of a covariance, row by row."
    )
    SKETCH_LACKS = "lacks the feature {name}; add it to its numbers, categories or constants."

    # -- models
    NOT_A_LEVEL = "{name} is {value}; give a number strictly between 0 and 1."
    X_SHAPE = (
        "X has shape {shape}; the model has {features} features, so give an array of shape (n, "
        "{features}), with at least one row."
    )
    DIVERGENCE_FAMILIES = (
        "f has {family} experts and g has {other} ones: costs compare one family only."
    )
    DIVERGENCE_SHAPES = (
        "f and g are for different data: the coefficients of one expert have shape {shape} in f "
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
        "{family} responses have no order, and so neither distribution function nor quantiles."
    )
    NO_OFFSET = "multinomial experts take no offset: it would cancel in the softmax."
    ALIGN_UNEQUAL = "cannot align {experts} experts to {others}: both models need the same number."

    # -- likelihood
    NO_ROUND_YET = "no refine round has been answered yet: ask the sites first."
    NOT_ROWS = "is {value}; give a number of rows."
    GRAM_NOT_ROWS = (
        "is {value:g}, but the expert has {rows:g} rows, each of which counts {most:g} at most in "
        "an intercept; fix it."
    )
    LESS_THAN_A_ROW = (
        "is {value:g}; a site has one row at least: give weights that add up to the number of rows."
    )
    CONSTANT_VARIES = (
        "is {value:g} in every row, but the sketch or the rows sent have other values; fix either."
    )
    NOT_A_GRAM = "is no sum of x x', which has no negative eigenvalue; write it row by row."
    NO_MOMENTS = (
        "no site sent means and variances of its features, which the first round asks for: ask the "
        "sites to answer again."
    )
    NO_SCALE = "the identity has no matrix: the number of columns is not known."

    # -- standard errors
    NO_EVIDENCE = (
        "the fit did not end in Newton steps, so that nothing is known about standard errors: give "
        "the rows that were fitted."
    )
    ROWS_FOR_SANDWICH = "the sandwich needs the rows that were fitted: give X and y."
    GROUPS_AND_INFORMATION = (
        "kind='information' takes every row as independent of the others, and groups say that they "
        "are not: leave one of the two out."
    )
    GROUPS_MISSING = "kind='clustered' needs to know which rows belong together: give groups."
    ONE_GROUP = (
        "there are {groups} groups of rows, and with fewer than 2 nothing is known about how "
        "groups differ: give the label of each row, such as the person that it is about."
    )
    GROUP_MISSING = (
        "{name} lacks the labels of {count} rows, of which row {row} is the first: give a label to "
        "every row, one of its own to a row that belongs to no other."
    )
    GROUP_KIND = "groups has labels that cannot be told apart by a hash ({error}): give text."
    NO_GROUPS_KNOWN = (
        "there is no column {column!r}: name it in shards_from(..., groups={column!r}), or read "
        "the shards from files that have it."
    )
    VARIANCE_AT_FLOOR = (
        "an expert fits its rows exactly, so that its variance stands at the floor and the "
        "likelihood has no maximum there: use fewer experts or more rows."
    )
    NOT_AT_MAXIMUM = (
        "the model is {distance} away from the maximum of the likelihood of these rows, and "
        "standard errors are right only there: give the rows it was fitted to, with their "
        "weights, offset and alpha; refine a model that was merged in one round, or fit all rows."
    )
    SAME_EXPERT = "expert {expert} cannot be compared with itself: give two experts."
    NO_BLOCK = "block is {block!r}, but the model has none such: choose one of {choices}."
    COMBINATIONS_SHAPE = (
        "the matrix has shape {shape}, expected (m, {parameters}): a column for every free "
        "parameter, in the order of `names`."
    )
    COMBINATION_ZERO = "row {row} of the matrix is zero: it is about nothing."
    NO_EXPERT = "there is no expert {expert}: they go from 0 to {last}."
    ONE_ROUND = (
        "a model merged by method={method!r} from the one message of each of {sites} sites has "
        "no standard errors: the local estimates have a bias of order 1 / n_m in common, which "
        "no information measures; refine it, or ask the sites for their information at the "
        "merged model."
    )

    # -- merging
    NO_GRAMS = (
        "site {site!r}{others} sent no Grams, and method='gram' needs them from every site: ask "
        "for them (otmoe fit --grams), or use method='reduction'."
    )
    GREEDY_TOO_MANY = (
        "the time of greedy merging grows with the cube of the number of experts, and there are "
        "{experts}: use method='reduction', which has no such limit."
    )
    NOBODY_LEFT = (
        "every site would be left out ({sites}): look at them, and name those that are to stay by "
        "keep."
    )
    KEEP_UNKNOWN = "keep names {names}, but the messages come from {sites}; use these names."
    GROUP_FAILED = "the sites of {name} cannot be merged: {why}"
    NOT_IN_GROUPS = (
        "{name} is of no use where sites are merged in groups: leave it out, or merge all at once "
        "with group_size={sites}."
    )
    MAX_WEIGHT_WRONG = "max_weight is {value!r}; give a share above 0, and 1 for no limit."
    NOT_MERGED = (
        "the models cannot be merged ({problem}): that of site {site!r} predicts the largest "
        "numbers; look at it, and leave it out if it is wrong."
    )
    NO_MIDDLE = (
        "no site has {experts} experts, and the middle model is one of the local ones: ask for "
        "another n_experts, or use method='reduction'."
    )
    AVERAGE_BY_COVARIATE = (
        "parameters are averaged with the same weights at every x, so site_weight='covariate' "
        "does not go with this method: use method='reduction', or leave site_weight out."
    )
    AVERAGE_UNEQUAL = (
        "site {site!r} has {experts} experts and {wanted} are wanted: parameters can be averaged "
        "only where all numbers agree; use method='reduction'."
    )
    ONE_MESSAGE = "messages is a LocalModel; give a list of them."
    NO_MESSAGES = "there is no message to aggregate: give at least one LocalModel."
    SITE_TWICE = "two messages come from site {site!r}: a site may send one; rename or drop one."
    WEIGHT_SHAPE = (
        "site_weight has shape {shape}, but there are {sites} messages: give one number per site."
    )
    WEIGHT_NEGATIVE = (
        "the weight of site {site!r} is {value}: give numbers that are zero or positive."
    )
    WEIGHTS_ZERO = "every site has weight zero: there is nothing to aggregate."
    WEIGHT_UNKNOWN = (
        "site_weight is {value!r}; give numbers, or 'covariate' for weights by sketches."
    )
    NO_SKETCHES = (
        "site_weight='covariate' needs a sketch from every site, and {sites} sent none: ask for "
        "them, as made by to_message(..., X=X, sketch=True), or leave site_weight out."
    )
    SUPPORT_SHAPE = (
        "support has shape {shape}, but the models have {features} features (site {site!r}): "
        "give an array of shape (S, {features}), without y."
    )
    SUPPORT_SHORT = (
        "support has {rows} rows for {columns} columns: give more rows than columns, better 2,000."
    )
    SUPPORT_NOT_FINITE = "support holds NaN or infinity in row {row}: drop such rows."
    SUPPORT_UNCOVERED = (
        "no site contributes at any support point: every site has features that never varied "
        "there and differ from the support; give support points from the sites themselves."
    )
    NOT_A_MESSAGE = (
        "message {number} is a {kind}, not a LocalModel: make one by to_message() of a fitted "
        "estimator, or read one by LocalModel.load(path)."
    )
    WEIGHT_UNKNOWN_SITES = (
        "site_weight names unknown sites {names}: give one weight for each of {sites}."
    )
    WEIGHT_LACKS_SITES = "site_weight lacks the sites {names}: give one weight for each of {sites}."
    WEIGHT_NOT_NUMBERS = "site_weight must hold numbers, one per site ({error})."
    SKETCH_UNITS = (
        "the sketches of the sites {site!r} and {other!r} have different units: fit all sites "
        "with the same features."
    )
    SUPPORT_COLUMNS = "support lacks the columns {missing}: the models were fitted to {features}."
    SUPPORT_NOT_NUMBERS = "support must hold numbers only ({error})."
    NO_SAMPLES = "there is no sample to draw support points from: give at least one."
    SAMPLES_EMPTY = "the samples have no rows to draw support points from: give some."
    SHARES_WRONG = "site_weight must be {sites} numbers, not all zero, none negative."
    SUPPORT_UNKNOWN_SITES = (
        "support has covariates of {names}, which sent no message; those that did are {sites}."
    )
    SUPPORT_MISSING = (
        "support is missing: give covariates at which the models are compared, an array of shape "
        "(S, d), for example from otmoe.draw_support, or ask the sites for sketches, made by "
        "to_message(..., X=X, sketch=True)."
    )
    SAMPLE_COLUMNS = (
        "samples have different columns, {columns} and {others}: give the same ones in the same "
        "order."
    )
    SAMPLE_SHAPE = (
        "sample {number} has shape {shape}; the first has {columns} columns: give arrays (n_m, "
        "d) of the same columns."
    )
    FEATURES_DIFFER = (
        "site {site!r} has other features than site {other!r}: fit all sites to the same "
        "columns, in the same order."
    )

    # -- workers
    EXECUTOR_BROKE = (
        "the executor broke (a worker died): give a function that makes an executor, so that a "
        "new one can take its place."
    )
    EXECUTOR_SHUT = "the executor is shut down; make a new one."
    RAY_NOT_STARTED = (
        "Ray has not been started: call ray.init first. It listens on all network interfaces of "
        "the machine, which is not done unasked."
    )
    NO_RAY = "Ray is not installed: pip install 'otmoe[ray]', or use another executor."

    # -- shards on workers
    NO_SHARDS = "there is no shard to fit: give at least one, see shards_from."
    EM_AND_REFINE = "method='em' ends at the maximum: leave refine at 0."
    SHARD_TWICE = "two shards have this name; give each rows of its own."
    ROUNDS_WRONG = "refine is {value!r}; give a number of rounds, or 'auto'."
    SHARD_CHANGED = (
        "its rows have changed since it was fitted ({before:.10g} rows then, {rows:,} now); fit "
        "again once nobody writes to them."
    )
    SHARD_TOO_SMALL = (
        "it has {rows} rows for {experts} experts; leave it out, or join it to another."
    )
    Y_MISSING = "give the y of the fit as well: the Grams weigh rows by it."
    NO_MODEL_TO_SAVE = "there is no model in a {kind}; give a MoE or a fitted estimator."
    NO_RATIOS = (
        "coefficients of {family} experts are no logarithms: their exponentials are no ratios; use "
        "table(), or block='gate'."
    )
    TARGET_IS_TEXT = "the target holds text; give numbers, or fit a classifier to it."

    # -- sites that exchange files
    NODE_NAME = "calls itself {site}, which is not its registered name"
    NODE_EXPERTS = "sent {experts} {family} experts, and was asked for {wanted} ({wanted_family})"
    NODE_FEATURES = "sent a model of other features than it was asked for"
    FOLDER_NOT_EMPTY = "the folder {folder} is not empty; name another as output."
    NODE_CLASSES = "sent a model of other classes than were declared"
    NODE_PART = "its reply holds no {part}; run the same app at all nodes"
    NO_FLOWER = (
        "Flower is not installed: pip install 'otmoe[flower]', or send the messages as files."
    )
    NODE_SLOW = "its reply is too large, or in too many parts: not unpacked within {seconds:g} s"
    NODE_LATE = "no reply within {seconds:g} s"
    NODE_RENAMED = "calls itself {site}, and was {before} before"
    NO_ROWS = "it has no rows; leave it out."
    ROWS_LEFT = (
        "{dropped:,} of {total:,} rows were dropped because a value is missing{columns}, and "
        "{rows:,} are left for {experts} experts; leave these columns out, or fill the gaps."
    )
    NO_OPTION = "there is no option {option}; remove it."
    METHOD_UNKNOWN = "`method` is {value}; choose one of {choices}."
    FEATURES_FILE = "`features` has to name a file that `otmoe features` wrote."
    NO_REFINING_HERE = "it answers no refine rounds; its node config has to say refine = true."
    REQUESTS_DISAGREE = "the refine request is about other features than the request beside it."
    ROWS_FOR_POLICY = (
        "the site's policy has to see the rows of the fit: give to_message their X and y, or "
        "policy=Policy.off() if they are nobody's."
    )
    IDS_FOR_POLICY = (
        "the site's policy counts people by column {column!r}: give to_message X, y and, as ids, "
        "that column."
    )
    LEDGER_SPOILT = (
        "is not as a ledger was written; put it aside, and answer nothing that was answered before."
    )
    LEDGER_UNWRITABLE = (
        "cannot write the ledger {path}: {reason}; name a file that can be written, by --ledger or "
        "`ledger` in the node config."
    )
    STATEMENT_NAME = "the statement {path} has to end in .html (to be signed) or .json."
    OTHER_STATEMENT = "it is no statement about this message; write one with `otmoe fit`."
    RULE_UNKNOWN = "is {value}, which is no rule of a policy; docs/policy.md has them all."
    POLICY_REFUSES = "the site's policy says do not send: {reasons}"
    FEW_GROUPS_TO_SEND = (
        "it has {groups} groups of rows, and the scatter of fewer than {least} shows too much of "
        "single ones; answer without it."
    )
    FEW_CLASSES_ASKED = "the request has fewer than two classes; declare all of them."
    CLASSES_ARE_NUMBERS = (
        "the target holds numbers, and the classes are declared as {label} and so on; declare "
        "the numbers."
    )
    ROUNDS_OVER = "the rounds are over: there is nothing more to ask."
    REPLIES_MISSING = (
        "round {round}: no reply from {names}; wait for it, or go on without (allow_missing)."
    )
    NO_REPLIES = "round {round}: no reply from {names}; wait for one."
    REPLY_UNASKED = (
        "{site} is not among the sites that were asked ({sites}); leave it out, or begin anew "
        "with its message."
    )
    REPLY_ROUND = (
        "replies to round {round}, which is {when}; ask {site} for its reply to round {wanted}."
    )
    REPLY_DIGEST = (
        "replies to another request than that of round {round} (digest {digest}, not {wanted}); "
        "send {site} the request again."
    )
    REPLY_ROWS = (
        "is about {rows:.10g} rows, but {site} fitted {fitted:.10g}; answer with the same rows "
        "and weights."
    )
    REPLY_LIKELIHOOD = "`log_likelihood` is {value:g}; that of classes or counts is at most 0."
    REPLY_TWICE = (
        "{file} and {other} are both from site {site}; a site replies once a round, so leave one "
        "out."
    )
    NO_STEP = (
        "round {round}: no step can be taken from what {sites} replied ({reason}); somebody sent "
        "wrong numbers."
    )
    REPLY_TOO_LARGE = (
        "has {parameters:,} free parameters, so that a reply would hold {values:,} numbers, and no "
        "more than {most:,} are read; ask about fewer experts or features."
    )
    REPLY_ODD = (
        "the reply cannot be right: {why}; ask {site} to answer again, or go on without it "
        "(odd='drop')."
    )
    REPLIES_ODD = "round {round}: no reply is left that can be right ({reasons})."
    REPLIES_CONTRADICT = (
        "the replies of {sites} cannot both be right: of {site}, {why}; ask both to answer again, "
        "or leave one out."
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
    NOT_HEXADECIMAL = "is {value}; give {digits} hexadecimal digits, in lower case."
    NOT_BASE64 = "is not base64; send the file again as otmoe has written it."
    NOT_WHOLE_NUMBERS = (
        "holds {bytes} bytes, and not one or more integers of {size} bytes; send the file again."
    )
    CHECKSUM = "is not that of `numbers`: the file was changed on its way; send it again."
    KEY_EXISTS = (
        "{file} is there already, and a key is never replaced; give another name, or remove it if "
        "no rounds need it any more."
    )
    NO_KEY = "there is no key {file}; give the file that `otmoe fit --secure` wrote."
    NOT_A_KEY = "{file} is not a private key; give the file that `otmoe fit --secure` wrote."
    ROSTER_NO_KEY = (
        "no public key in the message of {names}; let them fit again with --secure, or leave "
        "them out."
    )
    ROSTER_SMALL = (
        "has {sites} sites; a sum over fewer than {least} hides no site's part from the others."
    )
    ROSTER_SAME_KEY = (
        "has one key for {one} and {other}; each site has to make its own, so let one fit again."
    )
    ROSTER_BAD_KEY = "the roster's key of {site} is none that X25519 can use; do not answer."
    ROSTER_WITHOUT_ME = (
        "the roster of the request does not hold {site} with the key of this site ({key}...); "
        "do not answer, and ask the server which key it has."
    )
    ROSTER_CHANGED = (
        "the request has another roster ({roster}: {names}) than this site has answered before "
        "({before}); sums over both tell, by their difference, about the sites that are in one of "
        "them alone, so answer with --new-roster only if these have dropped out or agree."
    )
    ROSTER_MISSING = (
        "there is no roster, so that a reply would be read by itself; start the rounds with "
        "--secure, or answer without a key."
    )
    ROSTER_NOT_IN = (
        "{site} cannot be left out of the roster ({names}); name one of its sites at least."
    )
    SECURE_REQUEST = (
        "the request asks for masked replies; answer it with the key of this site (--key)."
    )
    SECURE_SCATTER = (
        "the request asks for the scatter, and in a secure sum all sites send the same parts; let "
        "{site} answer with --scatter, or start the rounds without --sandwich."
    )
    SECURE_BETWEEN = (
        "how sites differ cannot be told from a secure sum, which hides what each says; choose "
        "one of --between and --secure."
    )
    SECURE_WITHOUT_ROUNDS = "secure sums are taken in refine rounds; give refine as well."
    SECURE_MISSING = (
        "round {round}: no reply from {names}, and without it the sum of the others means nothing; "
        "wait for it, or begin again without (`otmoe refine again`)."
    )
    QUESTION_AGAIN = (
        "this site has answered the question {digest} before, for another roster or round; a "
        "second answer to it could be set against the first, so the server has to ask another one."
    )
    ANSWER_CHANGED = (
        "this site has answered the question {digest} before, from other rows, and two replies "
        "under the same masks give away their difference; answer with the rows of the first."
    )
    REPLY_NOT_MASKED = (
        "is a plain reply, and the rounds were started with --secure; answer with --key."
    )
    REPLY_CONTEXT = (
        "was masked for another request than that of round {round}; send {site} the request again."
    )
    MASKED_SIZE = (
        "`numbers` holds {length} integers, but the request asks for {wanted}; ask {site} to "
        "answer again."
    )
    MASKS_REMAIN = (
        "round {round}: the masks of {names} do not cancel, so one of them has used another roster "
        "or key; compare the fingerprints that `otmoe refine answer` printed."
    )
    TOO_LARGE_TO_MASK = (
        "a sum over the rows is no number or above {most:.3g}, the largest that can be masked; "
        "look for outlying values of the features."
    )
    STATE_ROSTER = "holds other sites than `sites`; fix it."
    ROUNDS_FIELD = 'is {value}; give a number of rounds, or "auto".'

    # -- data sets
    DATASET_NOT_THERE = (
        "there is no {files} in {folder} or its folders {places}: put the data set there, or "
        "name another folder in {variable}."
    )
    NO_DATA_FOLDER = "no folder of data sets is given: pass one, or let {variable} name it."
    NOT_A_FOLDER = "{folder} is no folder: pass another, or let {variable} name it."
    PERSON_INCOMPLETE = "{path} is missing: a person needs Actigraph.csv and RR.csv."
    PERSON_WITHOUT_BEATS = (
        "person {person} has no inter-beat interval between {low} and {high} s: leave this "
        "person out."
    )
    NO_TRUTH_FOUND = (
        "none of {tries} random truths gave each of {experts} experts its share of rows: use "
        "fewer experts, more features or a larger softness."
    )
    SOFTNESS = "softness is {value}; give a number between 0 (hard) and 1 (soft)."
    OVERLAP_FAMILY = "overlap=True is a kind of Gaussian data; leave it out for other families."
    TOO_SMALL = "{name} is {value}; give at least {least}."
    DATASET_UNREADABLE = "cannot be read: {error}"

    # -- estimators
    FEWER_ROWS_THAN_EXPERTS = (
        "n_samples={rows} is less than n_experts={experts}: give more rows (of positive weight) "
        "or ask for fewer experts."
    )
    GATE_FEATURES_TEXT = (
        "{argument} is {value!r}; give None (all features), 'intercept', or a list of feature "
        "names or indices."
    )
    NO_FIT_TO_SEND = (
        "this estimator was made from a model and has seen no rows, so there is no fit to "
        "report: call fit first, or write the model alone with otmoe.save_model."
    )
    X_MISSING = "X is missing: rows are not kept after fit, so give them once more."
    NEGATIVE = "{name} is {value!r}; give a number that is zero or positive."
    GATE_FEATURE_NAME = "{argument} names {name!r}, but the columns are {columns}."
    GATE_FEATURE_UNNAMED = "{argument} names {name!r}, but X came without column names."
    GATE_FEATURE_INDEX = "{argument} has {value!r}; indices go from 0 to {last}."
    EXPERT_FEATURES_COUNT = (
        "expert_features has features for {sets} experts, but n_experts={experts}; give one set "
        "for each expert, or one list for all."
    )
    PERSONAL_STRUCTURE = (
        "models of single sites are for experts whose coefficients are all free; leave out "
        "expert_features, common and common_variance, or ask for the common model alone."
    )
    COMMON_TEXT = "common is {value!r}; give a list of feature names or indices."
    COMMON_UNSEEN = "common has {name!r}, which no expert sees; add it to expert_features."
    NO_COMMON_VARIANCE = (
        "common_variance=True asks for one variance, but {family} experts have none; leave it out."
    )
    ONE_CLASS_IN_Y = (
        "y has one class only ({label!r}): a classifier needs at least two; where these rows "
        "lack some, declare all with classes=[...]."
    )
    NOT_A_CLASSIFIER = "the model carries no class labels: it is not a classifier's."
    ONE_CLASS_DECLARED = "classes is {classes!r}; declare at least two."
    MERGED_NOT_LOCAL = (
        "a merged model is no local model: send the messages in local_models_, or save the "
        "merged one by otmoe.save_model(est.model_, path)."
    )

    # -- evaluation
    NO_ROWS_TO_EVALUATE = "there are no rows to evaluate the model on; give some."
    OTHER_FEATURES = (
        "the features are not those of the model; give the specification it was fitted with."
    )
    QUANTILES_OF_CLASSES = "quantiles are for numbers, and this model is a classifier's."
    PROBA_OF_NUMBERS = "proba is for classes, and this model is a regression."
    OUTPUT_COLUMN_TWICE = "the output would have two columns {column!r}; keep another."

    # -- the report
    NO_REPORT = (
        "source is a {kind}; give an Aggregation, such as est.aggregation_, an MoE, or the path "
        "of a model file."
    )

    # -- how many experts
    ELBOW_ON_ROWS = (
        "the elbow is of models that were merged: use select_over_shards or "
        "select_from_messages, or choose by 'bic'."
    )
    ELBOW_TOO_FEW = (
        "n_experts is {numbers}: an elbow has a number below and one above; give three numbers "
        "of experts or more, or choose by 'bic' or, from messages alone, by 'expected_bic'."
    )
    ONE_NUMBER = "n_experts is {value}; give several numbers, such as range(1, 7)."
    NO_NUMBERS = "n_experts is empty; give the numbers of experts to try."
    NO_SCORES = "there is no answer: ask at least one site."
    NO_ELBOW = (
        "the elbow is a bend of R_c, which merged models have, and needs a number of experts "
        "below and one above: merge local models to three numbers or more, or choose by 'bic'."
    )
    NO_EXPECTATION = (
        "{criterion!r} is of models that were merged, and of what they are expected to lose to the "
        "sites' own: use select_over_shards or select_from_messages, or choose by 'bic'."
    )
    NO_LIKELIHOODS = (
        "{criterion!r} needs the log-likelihood of all rows: ask the sites (candidate_scores) "
        "and add their answers by scored, or choose by 'elbow'."
    )
    SCORES_COUNT = (
        "site {site!r} answered about {models} models and was asked about {wanted}: ask it again."
    )

    # -- pictures
    NO_MODEL_TO_PLOT = (
        "a {kind} holds no mixture of experts: give a fitted estimator, an aggregation, or a model."
    )
    FEATURE_NAME = "there is no feature {feature!r}; the model has {features}."
    FEATURE_INDEX = "there is no feature {feature}; they go from 0 to {last}."
    AXES = "ax holds {axes} axes, and {wanted} are needed: give {wanted}, or None."
    NO_MATPLOTLIB = "plots need matplotlib, which is not here ({error}): pip install 'otmoe[plot]'."
    NO_GATE = "a model with one expert has no gate to show."
    NO_FLOW = (
        "the ensemble keeps the experts of every site, so nothing flows: merge by another method."
    )
    TWO_FEATURES = "features is {value!r}; give two of them."
    NO_RESIDUALS = (
        "residuals of classes say little: look at DensityDisplay, or at the errors of "
        "otmoe.evaluation."
    )
    NO_FIT_TO_PLOT = (
        "a {kind} holds no fit of rows: give a fitted MoERegressor or MoEClassifier, or use "
        "from_aggregation."
    )
    NO_ITERATIONS = "method {method!r} has no iterations to show."
    NO_ROUNDS = "there were no refine rounds: leave refine out, or refine first."

    # -- the shell
    SHELL_OVERRIDE = "--override and --reason belong together: say which rule, and why."
    SHELL_NO_SUPPORT = (
        "there is nothing to compare the models at: give rows of covariates by --support, or ask "
        "the sites to fit with --sketch."
    )
    OUTPUT_FOLDER = "{path} is a folder; give the name of a file."
    OUTPUT_NO_FILE = "{path} is a pipe or a device, not a file; give the name of a file."
    OUTPUT_UNWRITABLE = "{path} cannot be written: {why}; give a folder that you may write to."
    OUTPUT_APPEARED = (
        "{path} has appeared in the meantime and was not replaced; what was to be written is in "
        "{other}."
    )
    NO_PLAIN_FILE = (
        "is a named pipe, a device or a socket, not a file; save what it gives as a file."
    )
    OUTPUT_EXISTS = "{path} is there already; give another name, or replace it by --force."
    NO_FOLDER = "there is no folder {folder}; make it first."
    KEEP_NO_FOLDER = (
        "{path} is a file, and local fits are kept in a folder: give another name for it."
    )
    SHELL_RAY_LISTENS = (
        "a Ray that is started here would listen on all network interfaces of this machine and run "
        "what it is sent; give the --address of one that is running behind a firewall, or use "
        "--executor local or dask."
    )
    SHELL_NO_ENGINE = (
        "--executor {executor} needs a package that is not here ({error}); install it with pip "
        "install 'otmoe[{executor}]', or use --executor local."
    )
    SHELL_ROLES = "target, weight and site are no features; take them off --columns."
    SHELL_START_OR = "--start brings its own: leave out {option}."
    SHELL_EXPERTS = "give --experts, or a model to begin at by --start."
    SHELL_CLASSES_FAMILY = "--classes goes with --family classes."
    SHELL_ONE_CLASS = "--classes has one class only; declare at least two."
    SHELL_FEW_CLASSES = (
        "the target has {classes} classes; where other sites have more, declare all of them by "
        "--classes."
    )
    SHELL_CLASSES_NUMBERS = (
        "column {column!r} holds numbers, and --classes has names: {classes}; give the numbers."
    )
    UNREADABLE_MESSAGES = "{bad} of {messages} messages cannot be read{hint}: {reasons}"
    SHELL_EXCLUDES_ALL = "--exclude leaves no site to merge."
    FILES_OF_ONE_SITE = (
        "{file} and {other} both come from site {site!r}; a site may send one message, so leave "
        "one out."
    )
    SHELL_EXCLUDE_UNKNOWN = "--exclude {site}: no message is from that site; there are {sites}."
    SHELL_NO_TARGET = "--target is missing; name the column of the response, or give --formula."
    SHELL_FORMULA_OR = "--formula and {option} are both given; give one of them."
    SHELL_EXPERT_FEATURES = (
        "--expert-features is {value!r}; where it is given for each expert, write its name first "
        "and once, as in rising=hour,month."
    )
    SHELL_FORMULA_TARGET = (
        "--formula has the response {formula!r} and --target is {target!r}; give one of them."
    )
    SHELL_SPLINE = "--spline is {value!r}; give a column and degrees of freedom, as in hour:5."
    SHELL_INTERACTION = "--interaction is {value!r}; give two columns, as in dep:origin."
    SHELL_FEATURES_OR_COLUMNS = "give --features or --columns, not both."
    SHELL_TARGET_OR_COLUMNS = "say which columns are features: all but --target, or --columns."
    SHELL_NOT_REMEMBERED = (
        "there is no {local} beside {file}: it stays where `otmoe fit` wrote it; give --target, "
        "--site and the rows instead."
    )
    SHELL_LOCAL_WRONG = (
        "{file} cannot be read ({reason}); give --target, --site and the rows instead of --fit."
    )
    SHELL_ANSWER_LACKS = "{lacking} is missing: give it, or the site's message by --fit."
    SHELL_NO_COLUMNS = "{file} says nothing about columns; name them by --columns."
    SHELL_SITE_OR_CUT = "with --site-column the sites are the shards; leave out --cut."
    SHELL_ADDRESS = "--address is of a cluster; give --executor dask or ray as well."
    SHELL_RENAMED = "{old} is called {new} now."
    SHELL_NO_PRIOR = (
        "this file does not say how sites differ: begin with `otmoe refine start --between auto`, "
        "and take the model file that the last step writes."
    )
    SHELL_SITE_OF_COLUMN = "--site-column needs --site: say whose rows they are."
    SHELL_TWO_FILES = "--state and --output are one file; give two."
    SHELL_ROUNDS_OVER = "the rounds are over; {status}."
    SHELL_ONE_FORM = "give one of --csv, --html and --json."
    SHELL_FORM_OF_FILE = "-o needs --csv or --html, which say what is written."
    SHELL_THREE_FILES = "state, request and model are three files; give each its own name."
    SHELL_FILES_ROWS = "--files is {files}, but there are {rows} rows."
    SHELL_FILES_FOLDER = "{path} is a file; with --files, give the name of a folder."
    FOLDER_IN_USE = "the folder {folder} has other files in it; give another name."
    FITS_FAILED = "{count} of the fits failed: {failures}"
