"""Downloads from a real server that misbehaves: what comes out is the right file or a sentence, never half a file."""

from __future__ import annotations

import hashlib
import io
import threading
import urllib.request

import pytest

from analysis.fetch.download import DownloadLimits, download
from analysis.fetch.errors import FetchError
from analysis.fetch.web import make_opener

BODY = bytes(range(256)) * 8000  # 2,048,000 bytes
SUM = hashlib.sha256(BODY).hexdigest()
QUICK = DownloadLimits(timeout_s=5, num_retries=2, backoff_s=0.5, max_backoff_s=4)


@pytest.fixture
def pauses():
    return []


@pytest.fixture
def get(tmp_path, pauses):
    def run(url, *, limits=QUICK, name="file.bin", **known):
        return download(url, tmp_path / "to" / name, limits=limits, pause=pauses.append, **known)

    return run


def left_over(tmp_path):
    return sorted(path.name for path in (tmp_path / "to").glob("*"))


def test_a_file_comes_whole_and_is_not_fetched_twice(site, get, tmp_path):
    told = []
    url = site.put("/f", BODY)
    path = get(url, size=len(BODY), sha256=SUM, progress=lambda done, total: told.append((done, total)))
    assert path.read_bytes() == BODY
    assert told[-1] == (len(BODY), len(BODY))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert left_over(tmp_path) == ["file.bin"]
    get(url, size=len(BODY), sha256=SUM)
    assert len(site.asked) == 1


def test_a_dropped_connection_is_carried_on_where_it_broke(site, get, pauses):
    url = site.put("/f", BODY, cuts=[500_000, 700_000])
    assert get(url).read_bytes() == BODY
    assert [asked.range for asked in site.asked] == [None, "bytes=500000-", "bytes=1200000-"]
    assert [asked.if_range for asked in site.asked] == [None, '"v1"', '"v1"']
    assert pauses == [0.5, 0.5]


def test_a_later_run_carries_on_what_an_earlier_one_left(site, get, tmp_path):
    url = site.put("/f", BODY, cuts=[900_000, 0, 0, 0])
    with pytest.raises(FetchError, match="900000 bytes were there.*Run the same command again") as caught:
        get(url)
    assert caught.value.kind == "dropped"
    assert len(site.asked) == 4
    assert (tmp_path / "to" / "file.bin.part").read_bytes() == BODY[:900_000]
    assert not (tmp_path / "to" / "file.bin").exists()
    assert get(url).read_bytes() == BODY
    assert site.asked[-1].range == "bytes=900000-"
    assert left_over(tmp_path) == ["file.bin"]


def test_a_part_that_is_complete_needs_no_more_bytes(site, get, tmp_path):
    url = site.put("/f", BODY, cuts=[900_000, 0, 0, 0])
    with pytest.raises(FetchError):
        get(url)
    (tmp_path / "to" / "file.bin.part").write_bytes(BODY)
    assert get(url, sha256=SUM).read_bytes() == BODY
    assert site.asked[-1].range == f"bytes={len(BODY)}-"


def test_a_part_longer_than_the_file_begins_anew(site, get, tmp_path):
    url = site.put("/f", BODY, cuts=[900_000, 0, 0, 0])
    with pytest.raises(FetchError):
        get(url)
    (tmp_path / "to" / "file.bin.part").write_bytes(BODY + b"more")
    assert get(url).read_bytes() == BODY
    assert site.asked[-1].range is None


def test_a_server_without_ranges_sends_the_whole_file_again(site, get):
    url = site.put("/f", BODY, knows_ranges=False, cuts=[500_000])
    assert get(url).read_bytes() == BODY
    assert site.asked[1].range == "bytes=500000-"


def test_a_server_without_ranges_that_always_breaks_off_is_given_up(site, get):
    url = site.put("/f", BODY, knows_ranges=False, cuts=[500_000] * 50)
    with pytest.raises(FetchError, match="byte 500000 of 2048000"):
        get(url)
    assert len(site.asked) == 4  # one that brought something, and three in a row that brought nothing new


def test_attempts_are_bounded_even_if_each_brings_a_little(site, get):
    url = site.put("/f", BODY, cuts=[10] * 1000)
    with pytest.raises(FetchError, match="broke off"):
        get(url, limits=DownloadLimits(max_attempts=7, backoff_s=0))
    assert len(site.asked) == 7


@pytest.mark.parametrize("knows_if_range", [True, False])
def test_a_file_that_changed_meanwhile_is_fetched_from_the_start(site, get, knows_if_range):
    # The first half of one file and the second half of another would be a file that never existed.
    url = site.put("/f", BODY, cuts=[900_000, 0, 0, 0], knows_if_range=knows_if_range)
    with pytest.raises(FetchError):
        get(url)
    new = BODY[::-1]
    site.put("/f", new, etag='"v2"', knows_if_range=knows_if_range)
    assert get(url).read_bytes() == new


def test_without_a_strong_validator_nothing_is_glued(site, get):
    url = site.put("/f", BODY, etag='W/"weak"', cuts=[900_000])
    assert get(url).read_bytes() == BODY
    assert [asked.range for asked in site.asked] == [None, None]


def test_without_a_validator_the_known_checksum_is_enough_to_carry_on(site, get):
    url = site.put("/f", BODY, etag=None, cuts=[900_000])
    assert get(url, sha256=SUM).read_bytes() == BODY
    assert site.asked[1].range == "bytes=900000-"
    assert site.asked[1].if_range is None


def test_last_modified_serves_where_there_is_no_etag(site, get):
    then = "Tue, 04 Aug 2026 10:00:00 GMT"
    url = site.put("/f", BODY, etag=None, last_modified=then, cuts=[900_000])
    assert get(url).read_bytes() == BODY
    assert site.asked[1].if_range == then


def test_a_chunked_answer_that_breaks_off_is_noticed(site, get):
    url = site.put("/f", BODY, chunked=True, cuts=[600_000])
    assert get(url).read_bytes() == BODY
    assert len(site.asked) == 2


def test_wrong_bytes_are_refused_and_removed(site, get, tmp_path):
    url = site.put("/f", BODY[:-1] + b"x")
    with pytest.raises(FetchError, match=f"expected 2048000 bytes with sha256 {SUM}") as caught:
        get(url, size=len(BODY), sha256=SUM)
    assert caught.value.kind == "wrong_bytes"
    assert left_over(tmp_path) == []


def test_another_size_is_refused_before_its_bytes(site, get, tmp_path):
    url = site.put("/f", BODY)
    with pytest.raises(FetchError, match="a file of 2048000 bytes; expected 5 bytes") as caught:
        get(url, size=5)
    assert caught.value.kind == "wrong_size"
    assert left_over(tmp_path) == []


def test_a_pointer_is_named_with_the_size_that_it_declares(site, get, tmp_path):
    # Pitfall A1: three lines of text instead of an archive.
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n"
    url = site.put("/trace-data.tar.gz", pointer)
    with pytest.raises(FetchError, match="Git-LFS pointer to a file of 12345 bytes") as caught:
        get(url, size=12345, sha256="0" * 64)
    assert caught.value.kind == "lfs_pointer"
    assert left_over(tmp_path) == []


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"\n<!DOCTYPE html><html><head><title>Quota\n exceeded</title>", "text/html; charset=utf-8"),
        (b"<HTML><head><title>Quota exceeded</title>", "application/octet-stream"),
    ],
)
def test_a_page_instead_of_the_file_is_refused_with_its_title(site, get, tmp_path, body, kind):
    url = site.put("/f", body, content_type=kind)
    with pytest.raises(FetchError, match="a web page titled 'Quota exceeded'") as caught:
        get(url, sha256=SUM)
    assert caught.value.kind == "html"
    assert left_over(tmp_path) == []


def test_a_page_does_not_cost_the_part_that_was_there(site, get):
    url = site.put("/f", BODY, cuts=[900_000, 0, 0, 0])
    with pytest.raises(FetchError):
        get(url)
    site.put("/f", b"<html>quota</html>", etag=None, knows_ranges=False)
    with pytest.raises(FetchError, match="a web page"):
        get(url)
    site.put("/f", BODY)
    assert get(url).read_bytes() == BODY
    assert site.asked[-1].range == "bytes=900000-"


def test_a_table_that_the_server_calls_html_is_taken(site, get):
    url = site.put("/f.csv", b"a,b\n1,2\n", content_type="text/html")
    assert get(url).read_bytes() == b"a,b\n1,2\n"


def test_an_empty_answer_is_refused(site, get):
    with pytest.raises(FetchError, match="an empty file"):
        get(site.put("/f", b""))


@pytest.mark.parametrize("chunked", [False, True])
def test_a_file_that_is_too_large_is_refused_whether_it_says_so_or_not(site, get, tmp_path, chunked):
    url = site.put("/f", BODY, chunked=chunked)
    with pytest.raises(FetchError, match="expected at most 100000 bytes") as caught:
        get(url, limits=DownloadLimits(max_bytes=100_000))
    assert caught.value.kind == "too_large"
    assert left_over(tmp_path) == []


def test_a_full_disk_is_told_before_the_download(site, get, tmp_path):
    url = site.put("/f", BODY)
    with pytest.raises(FetchError, match="bytes free in .*--to") as caught:
        get(url, limits=DownloadLimits(reserve_bytes=10**18))
    assert caught.value.kind == "no_space"
    assert left_over(tmp_path) == []


def test_a_redirect_is_followed(site, get):
    site.put("/real", BODY)
    assert get(site.put("/f", location="/real")).read_bytes() == BODY


@pytest.mark.parametrize("to", ["file:///etc/hostname", "ftp://127.0.0.1/x", "gopher://127.0.0.1/"])
def test_a_redirect_to_anything_but_the_web_is_refused(site, get, to):
    with pytest.raises(FetchError, match=to) as caught:
        get(site.put("/f", location=to))
    assert caught.value.kind == "redirect"


def test_a_redirect_from_https_down_to_http_is_refused():
    asked = urllib.request.Request("https://example.invalid/f")
    handler = next(handler for handler in make_opener().handlers if hasattr(handler, "redirect_request"))
    with pytest.raises(FetchError, match="a redirect to 'http://example.invalid/f'; expected one that stays on https"):
        handler.redirect_request(asked, io.BytesIO(), 302, "Found", {}, "http://example.invalid/f")
    followed = handler.redirect_request(asked, io.BytesIO(), 302, "Found", {}, "https://example.invalid/g")
    assert followed.full_url == "https://example.invalid/g"


def test_a_redirect_in_a_circle_ends(site, get):
    with pytest.raises(FetchError, match="302"):
        get(site.put("/f", location="/f"))
    assert len(site.asked) < 20


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://127.0.0.1/x", "127.0.0.1/x", "http:///x"])
def test_other_addresses_are_refused(get, url):
    with pytest.raises(FetchError, match="expected http or https") as caught:
        get(url)
    assert caught.value.kind == "scheme"


def test_not_found_is_not_tried_again(site, get, pauses):
    with pytest.raises(FetchError, match="the answer 404 .*see the trace's page") as caught:
        get(f"http://127.0.0.1:{site.port}/none")
    assert caught.value.kind == "refused"
    assert len(site.asked) == 1
    assert pauses == []


def test_an_overloaded_server_is_asked_again_with_growing_pauses(site, get, pauses):
    url = site.put("/f", BODY, statuses=[503, 500])
    assert get(url).read_bytes() == BODY
    assert pauses == [1.0, 2.0]


def test_retry_after_is_heeded_up_to_a_bound(site, get, pauses):
    url = site.put("/f", BODY, statuses=[503, 429], retry_after="3")
    assert get(url).read_bytes() == BODY
    assert pauses == [3.0, 3.0]
    pauses.clear()
    get(site.put("/g", BODY, statuses=[503], retry_after="86400"), name="g")
    assert pauses == [4.0]


def test_a_silent_server_is_left_after_the_timeout(site, get):
    silence = threading.Event()
    url = site.put("/f", BODY, silence=silence)
    with pytest.raises(FetchError, match="TimeoutError"):
        get(url, limits=DownloadLimits(timeout_s=0.2, num_retries=0))
    silence.set()


def test_nobody_at_the_address(get):
    # Port 1 of the loopback address: nothing listens there.
    with pytest.raises(FetchError, match="no connection"):
        get("http://127.0.0.1:1/f")


def test_a_file_with_other_content_is_not_overwritten(site, get, tmp_path):
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "file.bin").write_bytes(b"mine")
    with pytest.raises(FetchError, match="a file of 4 bytes with other content") as caught:
        get(site.put("/f", BODY), sha256=SUM)
    assert caught.value.kind == "exists"
    assert (tmp_path / "to" / "file.bin").read_bytes() == b"mine"


def test_two_downloads_of_one_file_do_not_mix(site, get, tmp_path):
    silence = threading.Event()
    url = site.put("/f", BODY, silence=silence)
    first = threading.Thread(target=get, args=(url,))
    first.start()
    while not site.asked and first.is_alive():
        pass
    with pytest.raises(FetchError, match="the other hindcast") as caught:
        get(url)
    assert caught.value.kind == "busy"
    silence.set()
    first.join()
    assert (tmp_path / "to" / "file.bin").read_bytes() == BODY
