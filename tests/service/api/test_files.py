"""Files and rows set aside, over HTTP."""

import io
import tarfile
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import requests
import sqlalchemy as sa

from runnel import temp_dirs
from runnel.connect.load import quarantine
from runnel.connect.load.quarantined_row import QuarantinedRow
from runnel.declare.model.flow import quarantine_table_of
from runnel.lake.catalog import schema
from runnel.lake.history.commits import CommitChange
from runnel.lake.publish import CommitDraft, publish
from runnel.names import TableName
from runnel.service.api import uploads
from tests.service.api.api_server import ORDERS, Api
from tests.service.running_service import until


def test_files_are_listed(seen: Api) -> None:
    found = seen.get("/files/raw.docs")
    assert [one["path"] for one in found["items"]] == ["in/more.csv", "in/orders.csv"] and found["next"] is None
    assert found["items"][1]["size"] == len(ORDERS) and found["items"][1]["modified_at"].endswith("+00:00")
    assert [one["path"] for one in seen.get("/files/raw.docs", glob="**/m*")["items"]] == ["in/more.csv"]
    first = seen.get("/files/raw.docs", limit=1)
    assert [one["path"] for one in seen.get("/files/raw.docs", after=first["next"])["items"]] == ["in/orders.csv"]
    assert seen.get("/files/ods.orders", 422)["code"] == "FILES_NOT_A_FILE_TABLE"
    assert seen.get("/files/raw.docs", 404, at="v1")["code"] == "TABLE_UNKNOWN"


def test_a_download(seen: Api) -> None:
    found = seen.ask("GET", "/files/raw.docs/in/orders.csv")
    assert (found.status_code, found.text) == (200, ORDERS)
    assert 'filename="orders.csv"' in found.headers["content-disposition"]
    known = {"If-None-Match": found.headers["etag"]}
    assert seen.ask("GET", "/files/raw.docs/in/orders.csv", headers=known).status_code == 304
    for path in ("in", "in/order.csv", "in/*", "../in/orders.csv", "in/orders.csv/x"):
        url = requests.Request("GET", f"{seen.url}/api/v1/files/raw.docs/{path}").prepare()
        url.url = f"{seen.url}/api/v1/files/raw.docs/{path.replace('*', '%2A').replace('..', '%2E%2E')}"
        url.headers["Authorization"] = f"Bearer {seen.secret}"
        answer = seen.session.send(url)
        assert (answer.status_code, answer.json()["code"]) == (404, "FILE_UNKNOWN"), path
    assert "close: `in/orders.csv`" in seen.get("/files/raw.docs/in/order.csv", 404)["what"]


LARGE = bytes(range(256)) * 20_000  # 5 MB: a blob that is read in several chunks


def read_pins(api: Api) -> int:
    """Return how many reads protect their files from garbage collection."""
    query = sa.select(sa.func.count()).select_from(schema.pins).where(schema.pins.c.kind == "read")
    return int(api.lake.store.db.read(lambda connection: connection.execute(query).scalar_one()))


def await_release(api: Api) -> None:
    """Wait until no read protects files any more: the service releases them after the last byte was sent."""
    until(lambda: read_pins(api) == 0, 10, lambda: "a read goes on", pause=0.02)


def damage_blob(api: Api, position: int) -> None:
    """Change one byte of the only blob."""
    (blob,) = (path for path in (api.lake.settings.home / "warehouse/.blobs").rglob("*") if path.is_file())
    contents = bytearray(blob.read_bytes())
    contents[position] ^= 1
    blob.write_bytes(contents)


def test_a_large_download_is_read_from_the_lake(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    assert api.ask("PUT", "/files/raw.up/a%20b.bin", data=LARGE).status_code == 200
    monkeypatch.setattr(temp_dirs, "create", None)  # nothing is copied first
    answer = api.ask("GET", "/files/raw.up/a%20b.bin")
    assert answer.content == LARGE and answer.headers["content-length"] == str(len(LARGE))
    assert answer.headers["content-disposition"] == "attachment; filename*=utf-8''a%20b.bin"
    await_release(api)


def test_a_download_whose_client_has_gone_ends(api: Api) -> None:
    contents = LARGE * 10  # more than the buffers of a connection
    assert api.ask("PUT", "/files/raw.up/a.bin", data=contents).status_code == 200
    with api.ask("GET", "/files/raw.up/a.bin", stream=True) as answer:
        next(answer.iter_content(1000))
        assert read_pins(api) == 1
    await_release(api)


RANGES = {
    "the rest": ("bytes=4000000-", 4_000_000, len(LARGE)),
    "a part": ("bytes=1048570-1048580", 1_048_570, 1_048_581),
    "the end": ("bytes=-5", len(LARGE) - 5, len(LARGE)),
    "more than all": ("bytes=0-99999999", 0, len(LARGE)),
}


def test_a_download_continues_where_it_was_interrupted(api: Api) -> None:
    assert api.ask("PUT", "/files/raw.up/a.bin", data=LARGE).status_code == 200
    for header, start, end in RANGES.values():
        answer = api.ask("GET", "/files/raw.up/a.bin", headers={"Range": header})
        assert (answer.status_code, answer.content) == (206, LARGE[start:end])
        assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/{len(LARGE)}"
    for header in ("bytes=5-4", "bytes=0-1,3-4", "lines=1-2", "bytes=-"):
        assert api.ask("GET", "/files/raw.up/a.bin", headers={"Range": header}).status_code == 200
    refused = api.ask("GET", "/files/raw.up/a.bin", headers={"Range": f"bytes={len(LARGE)}-"})
    assert (refused.status_code, refused.headers["content-range"]) == (416, f"bytes */{len(LARGE)}")
    await_release(api)


def test_damaged_contents_are_never_a_whole_answer(api: Api) -> None:
    assert api.ask("PUT", "/files/raw.up/a.bin", data=LARGE).status_code == 200
    damage_blob(api, 10)
    with pytest.raises(requests.RequestException), api.ask("GET", "/files/raw.up/a.bin", stream=True) as answer:
        assert answer.status_code == 200 and len(answer.content) < len(LARGE)
    await_release(api)


def test_small_damaged_contents_are_an_error(api: Api) -> None:
    assert api.ask("PUT", "/files/raw.up/a.bin", data=LARGE[:900_000]).status_code == 200
    damage_blob(api, 10)
    answer = api.ask("GET", "/files/raw.up/a.bin")
    assert (answer.status_code, answer.json()["code"]) == (500, "FILES_DAMAGED")
    await_release(api)


PATHS = ["a.txt", "deep/er/a b.txt", "odd/[x]*?.txt", "grüße/日本.txt", "!", "x" * 200, "%41.txt", "a+b&c=d#e.txt"]


def test_an_upload_comes_back_as_it_went(api: Api) -> None:
    for number, path in enumerate(PATHS):
        where = "/files/raw.up/" + requests.utils.quote(path, safe="/")
        contents = bytes([number]) * (300_000 if number == 1 else number)
        done = api.ask("PUT", where, data=contents)
        assert (done.status_code, done.json()["added"], done.json()["bytes"]) == (200, 1, len(contents)), done.text
        assert api.ask("GET", where).content == contents
    assert [one["path"] for one in api.get("/files/raw.up")["items"]] == sorted(PATHS)
    again = api.ask("PUT", "/files/raw.up/a.txt", data=b"").json()
    assert (again["commit"], again["unchanged"]) == (None, 1)
    other = api.ask("PUT", "/files/raw.up/a.txt", params={"message": "anew"}, data=b"other").json()
    assert other["replaced"] == 1
    commit = api.get(f"/commits/{other['commit']}")
    assert (commit["message"], commit["author"]) == ("anew", "ada")


REFUSED = {
    "a way up": ("/files/raw.up/%2E%2E/x", {}, 422, "FILES_PATH"),
    "a bell": ("/files/raw.up/a%07b", {}, 422, "FILES_PATH"),
    "a long name": ("/files/raw.up/" + "x" * 300, {}, 422, "FILES_PATH"),
    "a NUL": ("/files/raw.up/a%00b", {}, 422, "REQUEST_INVALID"),
    "no table name": ("/files/up/a", {}, 422, "NAME_TABLE"),
    "a table of rows": ("/files/ods.orders/a", {}, 422, "FILES_NOT_A_FILE_TABLE"),
    "an unknown branch": ("/files/raw.up/a", {"branch": "dve"}, 404, "BRANCH_UNKNOWN"),
}


@pytest.mark.parametrize(("path", "params", "status", "code"), REFUSED.values(), ids=REFUSED)
def test_refused_uploads(seen: Api, path: str, params: dict[str, str], status: int, code: str) -> None:
    head = seen.get("/branches")
    request = requests.Request("PUT", seen.url, params=params, data=b"x").prepare()
    query = request.url.partition("?")[2]
    request.url = f"{seen.url}/api/v1{path}" + (f"?{query}" if query else "")
    request.headers["Authorization"] = f"Bearer {seen.secret}"
    found = seen.session.send(request)
    assert (found.status_code, found.json()["code"]) == (status, code)
    assert seen.get("/branches") == head


def test_rows_set_aside(api: Api) -> None:
    store, table = api.lake.store, TableName.parse("ods.orders")
    assert api.get("/quarantine")["items"] == []
    assert api.get("/quarantine/ods.orders")["total"] == 0
    at = datetime(2026, 1, 2, tzinfo=UTC)
    rows = [QuarantinedRow(f"row {number}", "no number", "a.csv", "r1", at) for number in range(3)]
    location = quarantine.append(store, quarantine.create(store, table), rows)
    publish(store.db, CommitDraft("main", "aside", "ada", (CommitChange(quarantine_table_of(table), None, location),)))
    assert api.get("/quarantine")["items"] == [
        {"table": "ods.orders", "rows": 3, "quarantine": "quarantine.ods_orders"}
    ]
    found = api.get("/quarantine/ods.orders", limit=2)
    assert (found["total"], found["next"]) == (3, "2")
    assert found["rows"][0] == {
        "raw": "row 0",
        "reason": "no number",
        "cause": "no number",
        "file": "a.csv",
        "position": None,
        "run": "r1",
        "at": "2026-01-02T00:00:00+00:00",
    }
    assert len(api.get("/quarantine/quarantine.ods_orders", offset=2)["rows"]) == 1
    assert api.get("/quarantine/ods.orders", file="b.csv")["total"] == 0
    assert api.get("/quarantine/ods.ordres", 404)["what"].endswith("close: `ods.orders`")
    assert api.ask("DELETE", "/quarantine/ods.orders", params={"file": "b.csv"}).json()["code"] == "DISCARD_NOTHING"
    discarded = api.ask("DELETE", "/quarantine/ods.orders", params={"file": "a.csv"}).json()
    assert (discarded["table"], discarded["rows"]) == ("ods.orders", 3)
    assert store.commit("main").id == discarded["commit"]
    assert api.get("/quarantine")["items"] == []


def packed(*names: str, kind: bytes = tarfile.REGTYPE) -> bytes:
    """Return an archive of small files."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.type = (2, kind) if kind == tarfile.REGTYPE else (0, kind)
            member.linkname = "/etc/passwd"
            tar.addfile(member, io.BytesIO(b"hi"))
    return sink.getvalue()


def sized_header(size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    """Return the header of a file that claims a size."""
    member = tarfile.TarInfo("a")
    member.size, member.type = size, kind
    return member.tobuf(tarfile.GNU_FORMAT)


def sparse_header(kind: bytes) -> bytes:
    """Return the header of a file of 2 GiB that is one hole."""
    header = bytearray(sized_header(0, kind))
    header[386:410] = b"%011o\0%011o\0" % (2**31, 0)
    header[483:495] = b"%011o\0" % 2**31
    header[148:156] = b"%06o\0 " % tarfile.calc_chksums(bytes(header))[0]  # type: ignore[attr-defined]
    return bytes(header)


def pax_archive(fields: dict[str, str], records: bytes | None = None) -> bytes:
    """Return an archive of one empty file with an extended header."""
    member = tarfile.TarInfo("a")
    member.pax_headers = fields
    if records is None:
        return member.tobuf(tarfile.PAX_FORMAT) + bytes(1024)
    return sized_header(len(records), tarfile.XHDTYPE) + records.ljust(512, b"\0") + member.tobuf() + bytes(1024)


def test_an_archive_is_one_commit(api: Api) -> None:
    done = api.ask("PUT", "/files/raw.docs?branch=dev", data=packed("a/b.txt", "c.txt")).json()
    assert (done["added"], done["bytes"]) == (2, 4)
    assert [one["path"] for one in api.get("/files/raw.docs", at="dev")["items"]] == ["a/b.txt", "c.txt"]
    assert api.get("/commits", ref="dev")["items"][0]["commit"] == done["commit"]


ARCHIVES = {
    "none at all": (b"hello", "FILES_ARCHIVE"),
    "nothing": (b"", "FILES_ARCHIVE"),
    "no files": (packed(), "FILES_NONE"),
    "a path that leads out": (packed("../up"), "FILES_PATH"),
    "an absolute path": (packed("/etc/x"), "FILES_PATH"),
    "a link": (packed("a", kind=tarfile.SYMTYPE), "FILES_ARCHIVE"),
    "a folder": (packed("a", kind=tarfile.DIRTYPE), "FILES_ARCHIVE"),
    "a file that is a folder": (packed("a", "a/b"), "FILES_ARCHIVE"),
    "cut off": (packed("a")[:600], "FILES_ARCHIVE"),
    "a long name": (packed("x" * 300), "FILES_PATH"),
    "a deep path": (packed("/".join("d" * 300)), "FILES_PATH"),
    "a sparse file": (sparse_header(tarfile.GNUTYPE_SPARSE) + bytes(1024), "FILES_ARCHIVE"),
    "a sparse file of POSIX": (pax_archive({"GNU.sparse.realsize": str(2**31)}), "FILES_ARCHIVE"),
    "a size that leads back": (2 * sized_header(0) + sized_header(-1024) + bytes(2**15), "FILES_ARCHIVE"),
    "a size beyond the end": (sized_header(2**40) + bytes(1024), "FILES_ARCHIVE"),
    "a size below zero in a record": (pax_archive({"size": "-512"}), "FILES_ARCHIVE"),
    "a header larger than any path": (pax_archive({"comment": "x" * 2**21}), "FILES_ARCHIVE"),
    "records without an end": (pax_archive({}, records=b"0 path=a\n"), "FILES_ARCHIVE"),
}


@pytest.mark.parametrize(("body", "code"), ARCHIVES.values(), ids=ARCHIVES)
def test_archives_that_are_refused(seen: Api, body: bytes, code: str) -> None:
    found = seen.ask("PUT", "/files/raw.docs", data=body)
    assert (found.status_code, found.json()["code"]) == (422, code), found.text
    assert found.json()["fix"]


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_archives_of_all_formats(api: Api, form: int) -> None:
    paths = ["a.txt", "d/" * 60 + "e.txt", f"{'d' * 120}/{'e' * 90}"]
    paths += ["grüße/日本.txt"] * (form != tarfile.USTAR_FORMAT)
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=form) as tar:
        for number, path in enumerate(paths):
            member = tarfile.TarInfo(path)
            member.size, member.mtime = number * 500, 1_700_000_000.5 if form == tarfile.PAX_FORMAT else 1_700_000_000
            tar.addfile(member, io.BytesIO(bytes([number]) * member.size))
    assert api.ask("PUT", "/files/raw.up", data=sink.getvalue()).json()["added"] == len(paths)
    items = {item["path"]: item for item in api.get("/files/raw.up")["items"]}
    assert sorted(items) == sorted(paths)
    assert [items[path]["size"] for path in paths] == [number * 500 for number in range(len(paths))]
    fraction = ".500000" if form == tarfile.PAX_FORMAT else ""
    assert items["a.txt"]["modified_at"] == f"2023-11-14T22:13:20{fraction}+00:00"
    assert api.ask("GET", f"/files/raw.up/{paths[2]}").content == b"\x02" * 1000


def test_an_archive_of_too_many_files(seen: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "_MAX_FILES", 2)
    refused = seen.ask("PUT", "/files/raw.docs", data=packed("a", "b", "c"))
    assert (refused.status_code, refused.json()["code"]) == (422, "FILES_ARCHIVE")
    assert refused.json()["what"] == "the archive has more than 2 files"


def test_an_upload_that_is_too_large(api: Api) -> None:
    api.lake.settings = replace(api.lake.settings, max_upload_bytes=1000)
    assert api.ask("PUT", "/files/raw.up/a", data=bytes(1000)).status_code == 200
    for body in (bytes(1001), (bytes(600) for _ in range(2))):  # with and without a Content-Length
        refused = api.ask("PUT", "/files/raw.up/b", data=body)
        assert (refused.status_code, refused.json()["code"]) == (413, "FILES_TOO_LARGE")
        assert "service.max_upload" in refused.json()["fix"]
    assert api.ask("PUT", "/files/raw.up", data=packed("a")).status_code == 413


def test_files_are_removed(api: Api) -> None:
    api.ask("PUT", "/files/raw.docs?branch=dev", data=packed("a/b.txt", "a/c.txt", "d.txt"))
    params, headers = {"glob": "a/*", "branch": "dev", "message": "tidy up"}, {"Idempotency-Key": "rm-1"}
    answer = api.ask("DELETE", "/files/raw.docs", params=params, headers=headers)
    removal = answer.json()
    assert (answer.status_code, removal["removed"], removal["bytes"]) == (200, 2, 4), answer.text
    assert removal["paths"] == ["a/b.txt", "a/c.txt"]
    assert [file["path"] for file in api.get("/files/raw.docs", at="dev")["items"]] == ["d.txt"]
    commit = api.get(f"/commits/{removal['commit']}")
    assert (commit["message"], commit["author"]) == ("tidy up", "ada")
    repeated = api.ask("DELETE", "/files/raw.docs", params=params, headers=headers)
    assert (repeated.json(), repeated.headers["Idempotency-Replayed"]) == (removal, "true")
    other = api.ask("DELETE", "/files/raw.docs", params=params | {"glob": "d.txt"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "KEY_REUSED")


REFUSED_REMOVALS = {
    "no glob": ("raw.docs", {}, 422, "REQUEST_INVALID"),
    "an empty glob": ("raw.docs", {"glob": ""}, 422, "REQUEST_INVALID"),
    "a glob without match": ("raw.docs", {"glob": "in/order.csv"}, 404, "FILES_NO_MATCH"),
    "a table of rows": ("ods.orders", {"glob": "*"}, 422, "FILES_NOT_A_FILE_TABLE"),
    "an unknown table": ("raw.doc", {"glob": "*"}, 404, "TABLE_UNKNOWN"),
    "an unknown branch": ("raw.docs", {"glob": "*", "branch": "dve"}, 404, "BRANCH_UNKNOWN"),
    "a tag": ("raw.docs", {"glob": "*", "branch": "v1"}, 404, "BRANCH_UNKNOWN"),
}


@pytest.mark.parametrize(("table", "params", "status", "code"), REFUSED_REMOVALS.values(), ids=REFUSED_REMOVALS)
def test_refused_removals(seen: Api, table: str, params: dict[str, str], status: int, code: str) -> None:
    head = seen.get("/branches")
    answer = seen.ask("DELETE", f"/files/{table}", params=params)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert code != "FILES_NO_MATCH" or "close: `in/orders.csv`" in answer.json()["what"]
    assert seen.get("/branches") == head
