"""byte-exact: does constrained generation obey its grammar, to the byte?

A *token-table builder* tells a constraint engine which bytes each token of a vocabulary stands
for; a wrong one breaks the constraint silently. The pipeline runs model × tokenizer × suites ×
builders, judges every output on the bytes a runtime really renders, and writes tables.

    conf/ ──► cli ──► runs/parent ──► runs/worker ──► audit, generation
                          │                │                 │
                          │                │     engines, vocab, grammars, native
                          ▼                │
                       results ◄── rows ───┘
                          └──► summary, compare, report

A package imports only those above it in this list (contracts in pyproject.toml keep that):

    model       verdicts, names, errors, the registry; the standard library only
    system      processes, clocks, hashes, text; knows nothing of tokens
    native      llama.cpp and llguidance's C interface; the only native handles
    grammars    suites, collections, checkers, languages over bytes; no vocabulary
    vocab       a file anywhere → true bytes per id, byte-exact spellings
    engines     token tables and engines; one file per builder, one per library
    audit       findings: vocabulary, table, engine, grammar → what is wrong
    generation  a case → a transcript or a server's answer → its verdict
    results     tables, and what is computed from them; loads no engine
    runs        one job in a child process; `protocol` is all that parent and worker share
    cli         the commands; the only package that uses Hydra

Where a change goes (CONTRIBUTING lists the files of each extension; a test checks the list):

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
