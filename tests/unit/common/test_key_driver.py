"""Which driver keeps the keys: none on a release that has no drivers."""

from __future__ import annotations

import pytest

from saltext_ha.common import key_driver

pytestmark = pytest.mark.core

SALT_3007: set[str] = set()
SALT_3008 = {"keys.cache_driver"}


@pytest.mark.parametrize("driver", ["localfs_key", "mmap_key", None])
def test_a_release_that_does_not_know_the_option_ignores_it(driver: str | None) -> None:
    assert key_driver.of({"keys.cache_driver": driver}, SALT_3007) == ""
    assert key_driver.of({}, SALT_3008) == ""


def test_it_is_the_one_that_salt_takes() -> None:
    assert key_driver.of({"keys.cache_driver": "mmap_key"}, SALT_3008) == "mmap_key"
    by_cache = {"keys.cache_driver": None, "cache": "redis"}
    assert key_driver.of(by_cache, SALT_3008) == "redis"
    assert key_driver.of({"keys.cache_driver": ""}, SALT_3008) == "localfs"
