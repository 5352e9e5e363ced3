"""Expressions and messages on which two SQL92 filters are compared: drawn from the grammar, some spoilt."""

from random import Random

NAMES = ("a", "b", "s", "t", "_x", "$y", "TAGS", "missing", "Order", "notes", "inside")
VALUES = (
    "10", "-3", "007", "0", "-0", "-0.0", "+5", "2.5", "1e3", ".5", "5.", "1d", "2.5F", "0x10", "0x1p3",
    "NaN", "-NaN", "Infinity", "-Infinity", "nan", "1_0", "5L", " 10 ", "10 ", "true", "TRUE", "false",
    "null", "abc", "ABC", "it's", "\u503c", "\u0663", "2147483647", "2147483648", "-2147483648",
    "9223372036854775807", "9223372036854775808", "1e400", "1e-400", "4.9E-324", "a b", "", "%", "0.1",
    "9007199254740993", "--5", "1e", "0x1.8p-2d", "\t7\n", "tag||b",
)  # fmt: skip
NUMBERS = (
    "0", "1", "5", "10", "007", "12", "2147483647", "2147483648", "9223372036854775807",
    "9223372036854775808", "5L", "7l", "0L", "2.5", "10.", ".5", "1e3", "1E-2", "0.0", "1e400", "1e-400",
    "4.9E-324", "2.5f", "0.1", "9007199254740993", "0x10",
)  # fmt: skip
STRINGS = (
    "10", "2.5", "abc", "ABC", "it''s", "", "true", "a", "b", "\u503c", "null", "9223372036854775807",
    "1e3",
)  # fmt: skip
JUNK = (
    ";", "!=", "==", "*", "%", '"x"', "'", "LIKE", "(", ")", ",", "AND", "NOT", "IS", "=", "<>", "-", "+",
    ".", "5", "'q'", "a", "-- c", "-- c\n", "/* c */", "/*", "\u00e9", "IN", "BETWEEN", "NULL", "TRUE",
    "\x0b", "NOW()",
)  # fmt: skip
SPACES = (" ", " ", " ", "  ", "\t", "\n", " /* c */ ", " -- c\n", "\r\n", " /***/ ", "\f")


class ExpressionSource:
    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def message(self) -> dict[str, str]:
        random = self._random
        return {name: random.choice(VALUES) for name in NAMES[:7] if random.random() < 0.85}

    def expression(self) -> str:
        random = self._random
        words = self._or(random.choice((1, 2, 2, 3)))
        for _ in range(random.choice((0, 0, 0, 0, 0, 0, 1, 2))):
            at = random.randrange(len(words) + 1)
            match random.randrange(3):
                case 0:
                    words.insert(at, random.choice(JUNK))
                case 1:
                    del words[at : at + 1]
                case _:
                    words[at : at + 1] = [random.choice(JUNK)]
        text = ""
        for word in words:
            # Most words need a space between them; some get none, and become other words.
            text += (random.choice(SPACES) if random.random() < 0.93 else "") + self._case(word)
        return text

    def _case(self, word: str) -> str:
        return self._random.choice((word, word, word.lower(), word.title())) if word.isupper() else word

    def _or(self, depth: int) -> list[str]:
        return self._chain("OR", self._and, depth)

    def _and(self, depth: int) -> list[str]:
        return self._chain("AND", self._equality, depth)

    def _chain(self, word: str, part, depth: int) -> list[str]:  # type: ignore[no-untyped-def]
        words: list[str] = part(depth)
        while self._random.random() < 0.3:
            words += [word, *part(depth)]
        return words

    def _equality(self, depth: int) -> list[str]:
        random = self._random
        words = self._comparison(depth)
        if len(words) == 1 and random.random() < 0.8:
            words = [random.choice(NAMES), random.choice(("=", "<>")), *self._operand(depth)]
        while random.random() < 0.15:
            match random.randrange(4):
                case 0 | 1:
                    words += [random.choice(("=", "<>")), *self._comparison(depth)]
                case 2:
                    words += ["IS", "NULL"]
                case _:
                    words += ["IS", "NOT", "NULL"]
        return words

    def _comparison(self, depth: int) -> list[str]:
        random = self._random
        words = self._unary(depth)
        if len(words) == 1 and random.random() < 0.8:
            words = [random.choice(NAMES)]
        while random.random() < (0.5 if len(words) == 1 else 0.05):
            negation = ["NOT"] if random.random() < 0.3 else []
            match random.randrange(6):
                case 0 | 1 | 2:
                    words += [random.choice((">", ">=", "<", "<=")), *self._operand(depth)]
                case 3:
                    words += [*negation, "BETWEEN", *self._operand(depth), "AND", *self._operand(depth)]
                case 4:
                    words += [*negation, "IN", "(", self._string()]
                    for _ in range(random.randrange(6)):
                        words += [",", self._string()]
                    words.append(")")
                case _:
                    words += [
                        *negation,
                        random.choice(("CONTAINS", "STARTSWITH", "ENDSWITH")),
                        self._string(),
                    ]
        return words

    def _operand(self, depth: int) -> list[str]:
        """Mostly what can be compared by order."""
        random = self._random
        match random.randrange(10):
            case 0:
                return self._unary(depth)
            case 1 | 2 | 3:
                return [random.choice(NAMES)]
            case 4:
                return [random.choice(("-", "+")), random.choice(NUMBERS)]
            case _:
                return [random.choice(NUMBERS)]

    def _unary(self, depth: int) -> list[str]:
        random = self._random
        if random.random() < 0.15:
            return [random.choice(("+", "-", "NOT", "NOT")), *self._unary(depth)]
        match random.randrange(12):
            case 0 | 1 | 2 if depth > 0:
                return ["(", *self._or(depth - 1), ")"]
            case 3:
                return [random.choice((self._string(), random.choice(NUMBERS)))]
            case 4:
                return [random.choice(("TRUE", "FALSE", "NULL"))]
            case _:
                return [random.choice(NAMES)]

    def _string(self) -> str:
        return f"'{self._random.choice(STRINGS)}'"
