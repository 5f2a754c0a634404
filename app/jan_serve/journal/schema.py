"""The tables of the journal, as the scripts that lead from each version of them to the next.

owner: who left a row, as `core.caller.cache_salt` names the keys. Times are seconds of the Unix epoch.
"""

from __future__ import annotations

from typing import Final

import msgspec

_ANSWERS: Final = """
CREATE TABLE answers (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    created INTEGER NOT NULL,
    request BLOB NOT NULL,      -- JSON
    seed INTEGER NOT NULL,      -- of its sampling, where the request has none
    reply BLOB,                 -- JSON; NULL while it is written
    frames BLOB                 -- the events of its stream, compressed, once it is whole
) STRICT;
CREATE INDEX open_answers ON answers (created) WHERE reply IS NULL;
CREATE TABLE answer_events (
    answer TEXT NOT NULL REFERENCES answers (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    event BLOB NOT NULL,        -- see ipc.answer_log
    PRIMARY KEY (answer, number)
) STRICT, WITHOUT ROWID;
"""

_BATCHES: Final = """
CREATE TABLE files (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER,
    purpose TEXT NOT NULL,
    name TEXT NOT NULL,
    size INTEGER NOT NULL,
    content BLOB NOT NULL
) STRICT;
CREATE TABLE batches (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    dialect TEXT NOT NULL,
    state TEXT NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    facts BLOB NOT NULL,        -- JSON: journal.batches.BatchFacts
    input BLOB                  -- lines that are not checked yet
) STRICT;
CREATE INDEX batches_by_time ON batches (owner, created);
CREATE TABLE lines (
    batch TEXT NOT NULL REFERENCES batches (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,    -- from 0, in the order of the input
    rank INTEGER NOT NULL,      -- in the order of work
    custom_id TEXT NOT NULL,
    path TEXT NOT NULL,
    body BLOB NOT NULL,         -- JSON
    status INTEGER,             -- of HTTP; NULL while it is not answered
    reply BLOB,                 -- JSON
    request_id TEXT,
    PRIMARY KEY (batch, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX open_lines ON lines (batch, rank) WHERE status IS NULL;
"""

_LISTS: Final = """
DROP INDEX batches_by_time;
CREATE INDEX batches_by_time ON batches (owner, dialect, created);
CREATE INDEX files_by_time ON files (owner, created);
CREATE INDEX files_by_purpose ON files (owner, purpose, created);
"""

_LINE_LOGS: Final = """
CREATE TABLE line_logs (
    batch TEXT NOT NULL,
    line INTEGER NOT NULL,
    number INTEGER NOT NULL,
    weights TEXT NOT NULL,      -- of the model that writes the answer
    events BLOB NOT NULL,       -- see core.transcript
    PRIMARY KEY (batch, line, number),
    FOREIGN KEY (batch, line) REFERENCES lines (batch, number) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
"""

_LOGS: Final = """
CREATE TABLE logs (
    work TEXT NOT NULL,         -- an answer, or a batch
    line INTEGER NOT NULL,      -- of the batch; 0 for an answer
    number INTEGER NOT NULL,
    owner TEXT NOT NULL,
    weights TEXT NOT NULL,      -- of the model that writes the answer
    events BLOB NOT NULL,       -- see core.transcript
    PRIMARY KEY (work, line, number)
) STRICT, WITHOUT ROWID;
INSERT INTO logs SELECT batch, line, number, owner, weights, events FROM line_logs JOIN batches ON batch = id;
INSERT INTO logs SELECT DISTINCT answer, 0, 0, owner, 'unknown', x'' FROM answer_events JOIN answers ON answer = id;
DROP TABLE line_logs;
DROP TABLE answer_events;
ALTER TABLE answers DROP COLUMN seed;
CREATE TRIGGER answer_is_whole AFTER UPDATE OF reply ON answers BEGIN DELETE FROM logs WHERE work = old.id; END;
CREATE TRIGGER answer_is_gone AFTER DELETE ON answers BEGIN DELETE FROM logs WHERE work = old.id; END;
CREATE TRIGGER line_is_answered AFTER UPDATE OF status ON lines
BEGIN DELETE FROM logs WHERE work = old.batch AND line = old.number; END;
CREATE TRIGGER line_is_gone AFTER DELETE ON lines
BEGIN DELETE FROM logs WHERE work = old.batch AND line = old.number; END;
"""

_EXPIRY: Final = """
CREATE INDEX files_by_end ON files (expires) WHERE expires IS NOT NULL;
CREATE INDEX whole_answers ON answers (created) WHERE reply IS NOT NULL;
CREATE INDEX batches_by_state ON batches (state, created);
"""

MIGRATIONS: Final = (_ANSWERS, _BATCHES, _LISTS, _LINE_LOGS, _LOGS, _EXPIRY)


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """What a file holds. name: of the whole, for messages. setting: that bounds it. migrations: scripts, each of which
    leads to the next version.

    stored: tables with owners, and the lengths of what is in a row. deletable, lost: what to do about a full file, and
    about a damaged one.
    """

    name: str
    setting: str
    migrations: tuple[str, ...]
    stored: tuple[tuple[str, str], ...]
    deletable: str
    lost: str


WORK: Final = Content(
    name="journal",
    setting="journal_bytes",
    migrations=MIGRATIONS,
    stored=(
        ("files", "length(content)"),
        ("answers", "length(request) + coalesce(length(reply) + length(frames), 0)"),
        ("batches", "length(input)"),
        ("lines JOIN batches ON batch = id", "length(body) + coalesce(length(lines.reply), 0)"),
        ("logs", "length(events)"),
    ),
    deletable="Delete files, batches and responses that are done.",
    lost="Send what it held again.",
)

CHATS_FILE: Final = "chats.sqlite3"
_CHATS: Final = """
CREATE TABLE chats (
    number INTEGER PRIMARY KEY, -- the time of `updated` in 1/1024 ms, or somewhat later
    owner TEXT NOT NULL,
    id TEXT NOT NULL,
    title TEXT NOT NULL,
    folder TEXT NOT NULL,       -- empty: none
    pinned INTEGER NOT NULL,
    created INTEGER NOT NULL,   -- this and `updated`: milliseconds of the Unix epoch
    updated INTEGER NOT NULL,
    version INTEGER NOT NULL,   -- of its content, from 1
    messages INTEGER NOT NULL,
    deleted INTEGER,            -- when, in milliseconds; NULL if it is not
    content BLOB NOT NULL,      -- JSON, compressed
    UNIQUE (owner, id)
) STRICT;
CREATE INDEX chats_by_time ON chats (owner, number) WHERE deleted IS NULL;
CREATE INDEX chats_by_folder ON chats (owner, folder, number) WHERE deleted IS NULL;
CREATE INDEX pinned_chats ON chats (owner, number) WHERE deleted IS NULL AND pinned;
CREATE INDEX deleted_chats ON chats (deleted) WHERE deleted IS NOT NULL;
CREATE VIRTUAL TABLE words USING fts5(
    owner, title, text, tokenize = 'unicode61 remove_diacritics 2', prefix = '1 2 3'
);
CREATE TABLE store (id TEXT NOT NULL) STRICT;
INSERT INTO store VALUES (lower(hex(randomblob(8))));
"""

_AWAITED: Final = """
ALTER TABLE chats ADD COLUMN awaits TEXT NOT NULL DEFAULT ''; -- ids of responses that are to be put in, with spaces
CREATE INDEX waiting_chats ON chats (owner) WHERE awaits != '';
"""

CHATS: Final = Content(
    name="chat store",
    setting="chat_bytes",
    migrations=(_CHATS, _AWAITED),
    stored=(("chats JOIN words_content ON words_content.id = number", "length(content) + length(c2)"),),
    deletable="Delete chats.",
    lost="Chats that were only there are in the file that was moved.",
)
