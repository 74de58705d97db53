"""Which tests a process takes next."""

from tests.order import INTEGRATION, group, next_group

LONG, OTHER = f"{INTEGRATION}test_digits_family.py", f"{INTEGRATION}clusters/test_compose.py"
FILE = "tests/planner/test_energy.py"


def test_a_folder_with_a_shared_deployment_is_one_group() -> None:
    assert group(f"{INTEGRATION}one_worker/test_story.py::test_it") == f"{INTEGRATION}one_worker"
    assert group(f"{LONG}::test_it[a]") == LONG


def test_one_process_leaves_integration_tests_to_the_others() -> None:
    assert next_group([LONG, OTHER, FILE], [True, True, False]) is None
    assert next_group([LONG, OTHER, FILE], [True, True, True]) == FILE


def test_it_takes_them_when_nothing_else_is_left_or_it_is_alone() -> None:
    assert next_group([LONG, OTHER], [True, True, True]) is None
    assert next_group([LONG, FILE], []) is None
