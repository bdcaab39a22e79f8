"""byte-exact: does constrained generation obey its grammar, to the byte?

Between a vocabulary and a constraint engine stands a *token-table builder*; a wrong one breaks
the constraint silently. The pipeline runs model × tokenizer × suites × builders, judges every
output on the bytes a runtime really renders, and writes tables.

    conf/ ──► cli ──► runs/parent ──► runs/worker ──► audit, generation
                          │                │                 │
                          │                │     engines, vocab, grammars, native
                          ▼                │
                       results ◄── rows ───┘
                          └──► summary, compare, report

A package imports only those above it in this list (contracts in pyproject.toml keep that):

    model       verdicts, names, errors, the registry; the standard library only
    system      processes, clocks, hashes, text; no word of tokens
    native      llama.cpp and llguidance's C interface; the only native handles
    grammars    suites, collections, checkers, languages over bytes; no vocabulary
    vocab       a file anywhere → true bytes per id, byte-exact spellings
    engines     token tables and engines; one file per builder, one per library
    audit       findings: vocabulary, table, engine, grammar → what is wrong
    generation  a case → a transcript or a server's answer → its verdict
    results     tables, and what is made of tables alone; loads no engine
    runs        one job in a child process; `protocol` is all that parent and worker share
    cli         the commands; alone in knowing Hydra

Where a change goes (CONTRIBUTING has the files of each extension, kept true by a test):

    a setting                    <package>/settings.py, and the one place that reads it
    a builder                    engines/builders/<name>.py, conf/builder/<name>.yaml
    a library's builder, engine  engines/libraries/<library>.py
    a layout of collections      grammars/importers/<name>.py, conf/grammar/<name>.yaml
    a target                     generation/targets/<name>.py, conf/target/<name>.yaml
    a page of the report         results/report/<name>.py, results/report/templates/
    a column, a table            results/tables/schemas.py, and the stage in runs/worker/
    a verdict, a cause, a word   model/verdicts.py, results/tables/words.py
    how a cell is judged         model/outcome.py, generation/judgement.py, judge_*.py
    a checker                    grammars/checkers.py
    a source of files            vocab/files/resolve.py, fetch.py
"""
