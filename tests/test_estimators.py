import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from otmoe import MoERegressor


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks([MoERegressor()])
def test_scikit_learn_contract(estimator, check):
    check(estimator)
