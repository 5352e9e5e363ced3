"""The abort file: what a start believes of the stop before it hangs on its name."""

from random import Random

from simulator.world.sim_disk import SimDisk
from store.java.abort_file import mark_running, mark_stopped
from store.store_config import StoreConfig

CONFIG = StoreConfig(store_path_root_dir="s", ledger_directory="s/dledger-n0", store_host=bytes(8))


def test_a_start_that_was_ended_early_and_the_next_one_make_its_name_durable() -> None:
    for seed in range(20):
        disk = SimDisk(Random(seed), lambda: 0, lambda: 0)
        disk.make_directory(CONFIG.store_path_root_dir)
        disk.open("s/abort", create=True).close()  # and ended before the sync
        disk.process_crash()
        assert not mark_running(disk, CONFIG)
        disk.power_loss()
        assert not mark_running(disk, CONFIG), seed
        mark_stopped(disk, CONFIG)
        disk.power_loss()
        assert mark_running(disk, CONFIG)
