"""The words of all verdicts and causes in the tables: closed sets. A word has one meaning.

`results/tables/words` says which column holds the words of which type. If a type is ordered from
worst to best, its docstring says so. `outcome` decides the verdict of a cell.
"""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """Outcomes of a cell, worst first."""

    SILENT_CORRUPTION = "silent_corruption"
    UNENFORCED = "unenforced"
    EARLY_STOP = "early_stop"
    NO_STOP = "no_stop"
    REFUSED = "refused"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    BUSY = "busy"
    DEAD_END = "dead_end"
    STOPPED = "stopped"
    GRAMMAR_ERROR = "grammar_error"
    BUILDER_REFUSED = "builder_refused"
    LOAD_REFUSED = "load_refused"
    CHECKER_DISAGREES = "checker_disagrees"
    TRUNCATED = "truncated"
    IMPOSSIBLE = "impossible"
    OK = "ok"


BADNESS: dict[Verdict, int] = {verdict: len(Verdict) - i for i, verdict in enumerate(Verdict)}
"""How bad a verdict is; higher is worse. The order is that of the class."""


class Cause(StrEnum):
    """The cause of an outcome."""

    BYTES = "bytes"
    """The builder claims wrong bytes for a token."""
    TOKENIZE = "tokenize"
    """The builder's tokenization gives other tokens than the text needs."""
    SPECIAL = "special"
    """A special token or an end id is treated wrongly."""
    VOCABULARY = "vocabulary"
    """The file is wrong, or none of its tokens can continue the text."""
    GRAMMAR = "grammar"
    CHECKER = "checker"
    """The independent checker is wrong: it accepts more or less than the grammar, or disagrees with
    the label of the text."""
    ENGINE = "engine"
    RUNTIME = "runtime"
    """The process or server that runs the model."""
    BUILDER = "builder"
    """The token table or its tokenization, if it is not known which of the two."""
    NONE = "none"
    """There is no fault, or none of the parts above is at fault."""
    UNKNOWN = "unknown"


class Control(StrEnum):
    """What a cause rests on. The controls are tables with one part made true."""

    GREEDY = "greedy"
    """The builder's entries, tokenized greedily, mend the fault."""
    TRUE_BYTES = "true_bytes"
    """True bytes with the builder's tokenization mend it."""
    TRUE_MARKS = "true_marks"
    """The true special marks and end id mend it."""
    TRUE_TABLE = "true_table"
    """Only a wholly true table mends it; or, with the cause `engine`, it stands even there."""
    LIKENESS = "likeness"
    """Enough faults of the same kind and builder had this cause."""
    FACTS = "facts"
    """No experiment was needed: the tokens and bytes of the cell show it."""


class End(StrEnum):
    """How a cell's decoding ended."""

    STOP_ID = "stop_id"
    """A token was chosen on which the runtime stops."""
    TOKEN_LIMIT = "token_limit"
    EMPTY_MASK = "empty_mask"
    """No token was allowed, so none was chosen."""
    LOST = "lost"
    """The constraint was lost and the runtime stopped (`engine.on_error=stop`)."""
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    LOAD_REFUSED = "load_refused"
    BUILDER_REFUSED = "builder_refused"
    REFUSED = "refused"
    """A server refused the request (HTTP 4xx), or an imported case could not be read."""
    DECLINED = "declined"
    """The model of a server declined to answer."""
    BUSY = "busy"
    """A server asked to wait longer than allowed, or was still busy after the retries."""
    CLOSED = "closed"
    """The connection to a server failed or broke off."""
    FAILED = "failed"
    """A server failed (HTTP 5xx)."""
    GARBLED = "garbled"
    """A server's reply was not a valid answer."""


class Enforcement(StrEnum):
    """Whether a server enforces grammars of this kind, as the sentinel cases show."""

    ENFORCED = "enforced"
    IGNORED = "ignored"
    UNKNOWN = "unknown"
    """No sentinel answer shows it, or our engine does not compile the grammar."""


class Lost(StrEnum):
    """Where the constraint was lost."""

    NO = "no"
    COMPILE = "compile"
    MASK = "mask"
    CONSUME = "consume"
    IGNORED = "ignored"
    """There was no constraint from the start: the runtime ignores the grammar."""


class Bytes(StrEnum):
    """The rendered bytes against the byte-level grammar."""

    VALID = "valid"
    PREFIX = "prefix"
    INVALID = "invalid"
    UNJUDGED = "unjudged"
    """There is no byte-level grammar; only the checker judges."""


class Status(StrEnum):
    """Whether a unit of work came to a result, and if not, why."""

    OK = "ok"
    GRAMMAR_ERROR = "grammar_error"
    """The grammar does not compile under this engine."""
    BUILDER_REFUSED = "builder_refused"
    """A builder makes no table of the vocabulary, or there is no engine for it."""
    LOAD_REFUSED = "load_refused"
    """The file of the model or the vocabulary cannot be used."""
    NOT_INSTALLED = "not_installed"
    """The package of a released builder is not installed; used where many builders are examined."""
    CRASHED = "crashed"
    TIMEOUT = "timeout"


class RunStatus(StrEnum):
    """Whether a run has all the results that were requested."""

    COMPLETE = "complete"
    INTERRUPTED = "interrupted"
    """Some results are missing. The run can be resumed."""


class MaskVerdict(StrEnum):
    """Outcomes of a mask, worst first; the first that matches counts."""

    UNSOUND = "unsound"
    """It allows a token whose true bytes leave the grammar, or that renders nothing."""
    STOP_TOO_EARLY = "stop_too_early"
    """It allows an id on which the runtime stops, before the text is complete."""
    REFUSED_BY_CONSUME = "refused_by_consume"
    """It allows a token that is refused when it is consumed."""
    EMPTY = "empty"
    """It allows nothing, or fails, though legal tokens exist."""
    STOP_MISSING = "stop_missing"
    """The text is complete, and no id is allowed on which the runtime stops."""
    INCOMPLETE = "incomplete"
    """It misses legal tokens."""
    INCOMPLETE_FORCED = "incomplete_forced"
    """It allows the forced token and no other spelling, by design."""
    EXACT = "exact"
    NO_ORACLE = "no_oracle"
    """The grammar cannot be judged over bytes."""
    OVER_BUDGET = "over_budget"
    """The time for the oracle (`engine.oracle_budget`) was spent."""
    AFTER_DIVERGENCE = "after_divergence"
    """The true prefix is already illegal, so there is no state to judge."""


FAULTY_MASKS = (
    MaskVerdict.UNSOUND,
    MaskVerdict.STOP_TOO_EARLY,
    MaskVerdict.REFUSED_BY_CONSUME,
    MaskVerdict.EMPTY,
    MaskVerdict.STOP_MISSING,
    MaskVerdict.INCOMPLETE,
)
"""Verdicts of masks that are faults."""


class MaskKind(StrEnum):
    """What the wrong tokens of a mask have in common, besides the words of `Damage`."""

    SPECIAL = "special"
    """The runtime renders nothing for them."""
    FORCED = "forced"
    """Forced by the builder's tokenization."""
    DRIFTED = "drifted"
    """Their own bytes are right; an earlier token has wrong claimed bytes."""
    NONE = "none"
    NO_BYTES = "no_bytes"
    DUPLICATE = "duplicate"
    """Another token with the same bytes is allowed."""
    WRONG_BYTES = "wrong_bytes"
    LONG = "long"
    HALF_CHARACTER = "half_character"
    """Their bytes are not complete UTF-8 characters."""
    NEWLINE = "newline"
    PADDING = "padding"
    """Ids beyond the vocabulary."""
    END = "end"
    CONSUME = "consume"
    """Allowed by the mask and refused when they are consumed."""
    JSON_ORDER = "json_order"
    """Legal if properties come in another order."""
    JSON_SPELLING = "json_spelling"
    JSON_WHITE_SPACE = "json_white_space"
    CONTROL_CHARACTER = "control_character"
    OTHER = "other"


class Agreement(StrEnum):
    """Whether the engine-free oracle agrees with the byte-level grammar."""

    AGREES = "agrees"
    DISAGREES = "disagrees"


class Strategy(StrEnum):
    """How a walk picks its next token from the mask."""

    UNIFORM = "uniform"
    LONGEST = "longest"
    SHORTEST = "shortest"
    SPLIT = "split"
    """Short pieces that begin a longer legal token, which no tokenizer would choose."""
    ADVERSARIAL = "adversarial"
    """Tokens whose claimed bytes are not their true bytes, if the mask has one."""
    GIVEN = "given"
    """The case's own `tokens`, while the masks have them."""


class WalkEnd(StrEnum):
    """How a state walk ended."""

    STOP_ID = "stop_id"
    EMPTY_MASK = "empty_mask"
    MASKED = "masked"
    """The mask does not have the token that the case gives."""
    CONSUME = "consume"
    """The mask allows the token, and it is refused when it is consumed."""
    DIVERGED = "diverged"
    """The true bytes have left the grammar."""
    STEP_LIMIT = "step_limit"


class WalkVerdict(StrEnum):
    """What is wrong with a finished walk whose masks were all right."""

    CHECKER_DISAGREES = "checker_disagrees"
    """The grammar accepts the text, but the independent checker does not."""
    NOT_ACCEPTING = "not_accepting"
    """The walk ended, but the text is not complete in the byte-level grammar."""


class Tokenization(StrEnum):
    """The result of a tokenization for a probe."""

    EXACT = "exact"
    NON_CANONICAL = "non_canonical"
    """The same bytes in another split than the canonical one; this is not an error."""
    INEXACT = "inexact"
    """The tokens render other bytes than the input."""
    THROWN = "thrown"
    """There are no tokens: llama.cpp or the builder's tokenization failed."""


class ByteChange(StrEnum):
    """How the bytes of an inexact tokenization differ."""

    NONE = "none"
    PREFIX_ADDED = "prefix_added"
    SPACE_REMOVED = "space_removed"
    NORMALISED = "normalised"
    """Another difference, such as a Unicode normal form."""
    UNKNOWN_TOKEN = "unknown_token"
    """A part comes back as the vocabulary's unknown token, or as an id that it does not have."""
    SPECIAL = "special_returned"
    """A control token comes back for text."""
    INVALID_UTF8 = "invalid_utf8"
    META_SYMBOL = "meta_symbol"
    """The character that stands for a space in a vocabulary comes back as a space."""
    THROWN = "thrown"
    """llama.cpp threw an exception or aborted."""
    RAISED = "raised"
    """The builder's tokenization raised an exception, or returned an id that does not exist."""
    NOT_REPEATABLE = "not_repeatable"
    """The same text got other tokens the second time."""


class TokenizeMode(StrEnum):
    """How a builder turns bytes into tokens."""

    EXACT = "exact"
    """The tokens of every probe render exactly its bytes."""
    INEXACT = "inexact"
    """The tokens of some probe render other bytes; the engine is not told."""
    GREEDY = "greedy"
    """The engine tokenizes by itself and forces nothing."""


class Damage(StrEnum):
    """What is wrong with a claimed token."""

    LEADING_SPACE_LOST = "leading_space_lost"
    INNER_SPACE_LOST = "inner_space_lost"
    EMPTIED = "emptied"
    RUN_SHORTENED = "run_shortened"
    OTHER = "other"
    MARKED_SPECIAL = "marked_special"
    """The bytes are right, but text is entered as special: no grammar can write it."""
    NOT_MARKED = "not_marked"
    """The bytes are right, but a token that renders nothing is entered as text."""


class SpecialVerdict(StrEnum):
    """How a builder treats a token that is not plain text."""

    OK = "ok"
    END_ALLOWED_IN_STRING = "end_allowed_in_string"
    ALLOWED_BUT_HIDDEN = "allowed_but_hidden"
    """Allowed, though the runtime renders nothing for it."""
    ALLOWED_BUT_ILLEGAL = "allowed_but_illegal"
    """Allowed, though its true bytes leave the grammar."""
    TEXT_LOST = "text_lost"
    """Not allowed, though it is legal text."""


class Split(StrEnum):
    """How a text was split into tokens; every split renders exactly the text."""

    CANONICAL = "canonical"
    """As the runtime splits it."""
    GREEDY = "greedy"
    """The longest token at each place."""
    RANDOM = "random"
    RANDOM_2 = "random_2"
    """A second random split."""


class InstanceVerdict(StrEnum):
    """Outcome of a text in one split, or of a whole schema if no text was tried."""

    OK = "ok"
    VALID_REFUSED = "valid_refused"
    INVALID_ACCEPTED = "invalid_accepted"
    NO_STOP = "no_stop"
    """Accepted, and no id is allowed on which the runtime stops."""
    GRAMMAR_ERROR = "grammar_error"
    """The schema does not compile under this builder."""
    LIMIT = "limit"
    """A mask could not be computed: the engine reached a limit of its own."""
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    BUILDER_REFUSED = "builder_refused"
    LOAD_REFUSED = "load_refused"
    UNREADABLE = "unreadable"
    """The collection's file does not have the schema, or it cannot be read."""


class InstanceEnd(StrEnum):
    """How the walk of a text ended; part of the reason of a replay."""

    ACCEPTED = "accepted"
    NO_STOP = "no_stop"
    MASKED = "masked"
    """The mask does not allow the token."""
    CONSUME = "consume"
    """The mask allows the token, and it is refused."""
    NOT_ACCEPTING = "not_accepting"
    """Every token was taken, and the text is not complete."""
    NO_MASK = "no_mask"
    LATE = "late"
    """The case reached its time limit."""


class Origin(StrEnum):
    """Why a step took its token."""

    CHOSEN = "chosen"
    """The likeliest of several allowed tokens, or the only legal one."""
    FORCED = "forced"
    """The only token that the grammar and the builder's tokenization allow."""
    UNCONSTRAINED = "unconstrained"
    """The likeliest of all tokens, because the constraint was already lost."""


class Standing(StrEnum):
    """What a run says about a builder on a vocabulary (and a target, and axes), worst first."""

    UNSAFE = "unsafe"
    """A fault was found."""
    LIMITED = "limited"
    """Faults were found, and each needs a circumstance that the grammar itself brings."""
    UNPROVED = "unproved"
    """No fault was found, but a requested check did not come to a result."""
    SAFE = "safe"
    """No fault was found, and every requested check came to a result."""


class Change(StrEnum):
    """The change of a cell between two runs, worst first."""

    REGRESSED = "regressed"
    FAILURE_WORSE = "failure_worse"
    REMOVED = "removed"
    ADDED = "added"
    FAILURE_BETTER = "failure_better"
    FIXED = "fixed"
    STILL_FAILING = "still_failing"
    STILL_PASSING = "still_passing"


class RowChange(StrEnum):
    """The change of a row of another table between two runs, worst first."""

    WORSE = "worse"
    REMOVED = "removed"
    CHANGED = "changed"
    """Neither better nor worse."""
    ADDED = "added"
    BETTER = "better"
