"""The examples run as they are, and the API page is what the source says."""

import asyncio
import inspect
import runpy
from pathlib import Path

import pytest
from fake_group import FakeGroup

ROOT = Path(__file__).resolve().parents[2]
TOPICS = ("Greetings", "Orders", "Temperatures", "Pictures", "Prices", "Offers")

LAST_LINES = {
    "greetings.py": {"en: hello", "ja: こんにちは"},
    "orders.py": {"8 booked, 1 to come again in a second"},
    "price_watch.py": {"chair: 120, blue", "table: 310, red"},
    "replay.py": {"12 measurements, 20.0 to 21.1 degrees"},
    "request_reply.py": {"apple: 40 cents", "pear: 55 cents", "quince: 90 cents"},
    "without_asyncio.py": {"shrunk: 0.png 1.png 2.png 3.png 4.png", "counted: 5"},
}


def run(file: str) -> None:
    main = runpy.run_path(str(ROOT / "examples" / file))["main"]

    async def story() -> None:
        async with FakeGroup(topics=TOPICS) as group, asyncio.timeout(20):
            if inspect.iscoroutinefunction(main):
                await main(group.address)
            else:
                await asyncio.to_thread(main, group.address)

    asyncio.run(story())


@pytest.mark.slow
@pytest.mark.parametrize("file", LAST_LINES)
def test_an_example_does_what_it_says(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(file)
    printed = capsys.readouterr().out.splitlines()
    assert set(printed[-len(LAST_LINES[file]) :]) == LAST_LINES[file]


def test_orders_are_booked_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    run("orders.py")
    printed = capsys.readouterr().out
    for order in ("1001", "1003"):
        assert [line for line in printed.splitlines() if line.startswith(order)] == [
            f"{order} {event}: booked" for event in ("created", "paid", "shipped")
        ]


def test_the_api_page_is_what_the_source_says() -> None:
    """Else: python docs/make_api.py"""
    assert (ROOT / "docs" / "api.md").read_text() == runpy.run_path(str(ROOT / "docs" / "make_api.py"))[
        "page"
    ]()
