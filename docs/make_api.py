"""Makes docs/api.md from what the client's source says of itself: python docs/make_api.py

A name that is public and in no section here, or the other way round, is an error; a test holds the page to this.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from types import ModuleType

import mqclient
import mqclient.admin_results
import mqclient.sync

PAGE = Path(__file__).with_name("api.md")
LINE = 96  # characters of a signature before it takes a line per argument

SECTIONS: dict[str, str] = {
    "Producing": "Producer ProducerConfig Message SendResult SendStatus SendPipeline QueueSelector by_sharding_key "
    "TransactionProducer LocalTransaction CheckListener TransactionState TransactionSendResult",
    "Consuming": "PushConsumer ConsumeBatch LitePullConsumer SimpleConsumer ConsumerConfig ConsumeFromWhere "
    "MessageModel MessageExt MessageQueue Expression MessageSelector sql OnAssignment OnTopicQueues",
    "Who reads which queues": "AllocateStrategy AVG AVG_BY_CIRCLE CONSISTENT_HASH by_consistent_hash by_config "
    "by_machine_room by_machine_room_nearby",
    "Connecting": "tls_from_file",
    "Operating": "Admin TopicAdmin GroupAdmin BrokerAdmin MessageAdmin NamesrvAdmin AccessAdmin",
    "Signing requests": "Credentials load_credentials",
    "Errors": "MQClientError SendError RequestTimeoutError MessageIllegalError RouteNotFoundError NoMasterError "
    "NoAnswerError BrokerResponseError BadAnswerError CommitError AckError QueueNotAssignedError OffsetIllegalError "
    "LocalOffsetsError ClientClosedError AdminError",
}
SYNC_SECTION = (
    "Producer TransactionProducer LocalTransaction CheckListener "
    "PushConsumer MessageListener LitePullConsumer SimpleConsumer"
)

HEAD = """# The client's API

Made by `python docs/make_api.py` from the source, which has the last word. What the parts mean together is in
[usage.md](usage.md#from-python); whole programs are in [examples/](../examples/README.md).

"""


def page() -> str:
    results = vars(mqclient.admin_results).values()
    sections = [
        *((title, names, mqclient) for title, names in SECTIONS.items()),
        (
            "What Admin returns: mqclient.admin_results",
            " ".join(
                one.__name__ for one in results if getattr(one, "__module__", "") == "mqclient.admin_results"
            ),
            mqclient.admin_results,
        ),
        ("Without an event loop: mqclient.sync", SYNC_SECTION, mqclient.sync),
    ]
    missing = set(mqclient.__all__) ^ {name for names in SECTIONS.values() for name in names.split()}
    missing |= set(mqclient.sync.__all__) ^ set(SYNC_SECTION.split())
    if missing:
        raise SystemExit(f"{__file__}: public and in no section, or not public: {', '.join(sorted(missing))}")
    parts = [HEAD]
    for title, names, module in sections:
        parts.append(f"## {title}\n\n")
        if title == "Errors":
            parts.append(_paragraph(sys.modules["mqclient.errors"].__doc__))
        if module is not mqclient:
            parts.append(_paragraph(module.__doc__))
        for name in names.split():
            parts += _thing(module, name)
    return "".join(parts).rstrip() + "\n"


def _thing(module: ModuleType, name: str) -> Iterator[str]:
    yield f"### {name}\n\n"
    thing = getattr(module, name)
    if inspect.isclass(thing):
        yield from _class(thing)
    elif inspect.isfunction(thing):
        yield _code(_signature(_tree(thing)))
        yield _paragraph(thing.__doc__)
    else:
        yield from _constant(name)


def _class(kind: type) -> Iterator[str]:
    functions = _functions(kind)
    fields = _fields(kind)
    if "__init__" in functions and not issubclass(kind, Exception) and kind is not mqclient.ConsumeBatch:
        yield _code(_signature(functions["__init__"], name=kind.__name__))
    yield _paragraph(kind.__doc__)
    if "__init__" in functions and kind is not mqclient.ConsumeBatch:
        yield _paragraph(ast.get_docstring(functions["__init__"]))
    if fields:
        yield _code("\n".join(fields))
    for name, tree in functions.items():
        if name.startswith("_"):
            continue
        is_property = any(isinstance(one, ast.Name) and one.id == "property" for one in tree.decorator_list)
        text = f"{name}: {ast.unparse(tree.returns)}" if is_property and tree.returns else _signature(tree)
        yield f"#### {kind.__name__}.{name}\n\n" + _code(text) + _paragraph(ast.get_docstring(tree))


def _constant(name: str) -> Iterator[str]:
    """An alias or a value: its line, and the string behind it."""
    for module in [module for at, module in sys.modules.items() if at.startswith("mqclient.")]:
        body = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")).body
        for statement, behind in zip_longest(body, body[1:]):
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name:
                yield _code(_text(statement))
                if isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant):
                    yield _paragraph(str(behind.value.value))
                return
    raise SystemExit(f"{__file__}: {name} is no class or function, and assigned nowhere in mqclient")


Function = ast.FunctionDef | ast.AsyncFunctionDef


def _functions(kind: type) -> dict[str, Function]:
    """Its own, and what it has from other classes of the client."""
    found: dict[str, Function] = {}
    for one in kind.__mro__:
        if one is kind or (one.__module__.startswith("mqclient") and not issubclass(kind, Exception)):
            body = ast.parse(inspect.cleandoc("\n" + inspect.getsource(one))).body[0]
            assert isinstance(body, ast.ClassDef), "that is what a class's source is"
            for statement in body.body:
                if isinstance(statement, Function):
                    found.setdefault(statement.name, statement)
                elif (made := _made(one, statement)) is not None:
                    found.setdefault(made.name, made)
    return found


def _made(kind: type, statement: ast.stmt) -> Function | None:
    """What stands for `name = _waiting(AsyncClass.name)`: a method that needs no `await`."""
    if not isinstance(statement, ast.Assign) or not isinstance(target := statement.targets[0], ast.Name):
        return None
    wrapped = getattr(getattr(kind, target.id), "__wrapped__", None)
    if wrapped is None:
        return None
    tree = _tree(wrapped)
    return ast.FunctionDef(**{name: getattr(tree, name) for name in tree._fields})


def _fields(kind: type) -> list[str]:
    """Lines of the source between the docstring and the first method: names, types, defaults and their comments."""
    lines = inspect.getsource(kind).splitlines()
    (tree,) = ast.parse("\n".join(lines)).body
    assert isinstance(tree, ast.ClassDef), "that is what a class's source is"
    found: list[str] = []
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]).startswith("__"):
            continue
        if isinstance(statement, ast.AnnAssign | ast.Assign) and _made(kind, statement) is None:
            assert statement.end_lineno is not None, "parsed source has it"
            found += [line[4:] for line in lines[statement.lineno - 1 : statement.end_lineno]]
        elif found and isinstance(statement, ast.Expr):
            found.append(f"# {ast.literal_eval(statement.value)}")
    return found


def _tree(function: object) -> Function:
    (tree,) = ast.parse(inspect.cleandoc("\n" + inspect.getsource(function))).body  # type: ignore[arg-type]
    assert isinstance(tree, Function), "that is what a function's source is"
    return tree


def _signature(tree: Function, name: str = "") -> str:
    arguments = tree.args
    shown: list[str] = []
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(arguments.defaults)) + [*arguments.defaults]
    shown += [_argument(argument, default) for argument, default in zip(plain, defaults, strict=True)]
    if arguments.vararg is not None:
        shown.append("*" + _argument(arguments.vararg, None))
    elif arguments.kwonlyargs:
        shown.append("*")
    shown += map(_argument, arguments.kwonlyargs, arguments.kw_defaults)
    shown = [text for text in shown if text != "self"]
    head = "" if name else "async def " if isinstance(tree, ast.AsyncFunctionDef) else "def "
    tail = f" -> {ast.unparse(tree.returns)}" if tree.returns is not None and not name else ""
    line = f"{head}{name or tree.name}({', '.join(shown)}){tail}"
    if len(line) <= LINE:
        return line
    return f"{head}{name or tree.name}(\n" + "".join(f"    {text},\n" for text in shown) + f"){tail}"


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    text = argument.arg
    if argument.annotation is not None:
        text += f": {ast.unparse(argument.annotation)}"
    return text if default is None else f"{text} = {_text(default)}"


def _text(tree: ast.AST) -> str:
    """As ruff formats it, which looks into pages, too."""
    return ast.unparse(tree).replace("'", '"')


def _code(text: str) -> str:
    return f"```python\n{text}\n```\n\n"


def _paragraph(text: str | None) -> str:
    return inspect.cleandoc(text) + "\n\n" if text else ""


if __name__ == "__main__":
    PAGE.write_text(page())
