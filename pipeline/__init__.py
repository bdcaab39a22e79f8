"""byte-exact: does constrained generation obey its grammar, to the byte?

Between a vocabulary and a constraint engine stands a *token-table builder*; a wrong one breaks
the constraint silently. The pipeline runs model × tokenizer × suites × builders, judges every
output on the bytes a runtime really renders, and writes tables.

    conf/ ──► config ──► run ──► supervise ──► worker ──► stages
                          │                                 │
                          │     sources, fetch ─► forge ─► vocabulary ─► builders/ ─► constraint
                          │                                 │       │                    │
                          │                               audit     │ oracle ◄─ decode ◄─┘
                          │                                 │       │   │
                          │                                 │       └─► targets/ ─► a server
                          │                                 │           │ replies ◄─────┘
                          ▼                                 ▼           ▼
                        tables ◄──────── rows ──────── evaluate ◄── validate
                          │                               │
          summary, compare ──► report                 verdict

Left to right and top to bottom; nothing flows back. The files, in that order:

    __main__, commands   the commands
    commands_sweep       the jobs of one, here or by a launcher; with config all that knows Hydra
    config, config_target
                         the settings, as typed dataclasses
    errors               step → error → what the user sees
    jobs, units          settings → a job; what it owes, and which of it is a shard's
    run                  one job per model and tokenizer
    collect, commands_collect
                         journals, of shards too, merged into a run, once
    journal, resume      what was asked, begun and done; going on where a run was cut short
    attempts, lost       a job in as many workers as it takes; rows for what none could finish
    supervise, lifeline, intake
                         the parent's side of a worker: its messages, its death; rows checked
    worker, limits       the native process, and what it may take of the machine
    stages               load, audit, generate, judge
    sources, fetch       where a file comes from: path, package, sdist, wheel, hub; pinned, cached
    gguf_file, sentencepiece_model, forge
                         a tiny seeded GGUF around any vocabulary
    llama, llguidance_abi
                         the only files with native handles
    vocabulary           true bytes of every token, read twice
    prefix               where SentencePiece's dummy prefix goes: six schemes, and who declares one
    partition, cuts, merge, spm
                         a SentencePiece encoder: llama.cpp's ids, or every byte string back
    builders/            vocabulary → token table; the things under test, one file each
    foreign, foreign_process, foreign_serve, tokenizer_json
                         builders from released packages, each in a process of its own
    engines/, foreign_engine, engine_probe
                         released engines' own masks, and what is wrong with them by kind
    importers/           suites of others, read where they lie; one file per layout; as cases
    suites               prompt + grammar + independent checker, from `datasets/`
    constraint           grammar over token table → masks; the engine protocol
    oracle               the same grammar over single bytes; never sees a token table
    targets/, decode     where generation happens; a state machine per cell
    scheduler, sequences, choice, room, stopwatch
                         cells in batches; shared prompts; tokens out of logits; where time goes
    job_target, replies  which server, as a worker is told; its answers → verdicts
    validate             literal, `re`, JSON; never sees the engine
    verdict, evaluate    facts → verdict; whose fault
    audit                token tables against true bytes
    reproduce, small_cases, recipe
                         a fault → the smallest case that shows it, and the command that does
    splits, replay, instance_walk
                         given texts cut into tokens and walked through the masks
    placement, references, chat
                         where implementations put the prefix, and what that does to a chat
    cell_rows            the row of a cell, one shape for all targets
    schemas, field, tables, summary, summary_replay, generation_summary
                         columns as data, a row for each builder's release and vocabulary, Parquet;
                         what the console says
    commands_compare, config_compare
                         the commands `compare` and `baseline`; their settings and `report`'s
    sides, baseline      a run, a part of one, or the committed verdicts, as a side to compare
    alike, pairing, table_changes, repeats, compare
                         two sides → what got worse; reads tables only
    comparison_out/, visible
                         console, Markdown, JUnit, JSON, annotations; nothing raw
    commands_report, report/
                         the command `report`: tables and a comparison → a static site
    provenance           versions, hashes, commit
"""
