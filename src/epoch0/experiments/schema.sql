-- The file of results; the two numbers are those of store.py: whose file it is, and the version of its layout.
CREATE TABLE results (
    key TEXT PRIMARY KEY, function TEXT NOT NULL, seed INTEGER NOT NULL, spec TEXT NOT NULL,
    result TEXT NOT NULL, arrays TEXT, digest TEXT NOT NULL);
PRAGMA application_id=1697656880;
PRAGMA user_version=1;
