import os
import subprocess
import sys
from dataclasses import FrozenInstanceError

import pytest

from agentbook.authoring import Agent, tool
from agentbook.authoring.sources import source
from agentbook.errors import ConfigError
from agentbook.models import ScriptedModel, ToolSpec

MODEL = ScriptedModel(["x"])


@tool(replay="safe")
def search(query: str) -> list[str]:
    """Search orders."""
    return [query]


async def answer(request):
    return "hello"


def test_an_agent_knows_its_tools_by_name():
    agent = Agent("clerk", model=MODEL, tools=[search])
    assert agent.toolbox == {"search": search}
    assert agent.specs() == [ToolSpec("search", "Search orders.", search.schema)]


def test_a_plain_async_function_is_its_model():
    assert Agent("clerk", model=answer).model.name == "answer"


def test_an_agent_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        Agent("clerk", model=MODEL).name = "other"


def plain(query): ...


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"name": "two words"}, "agent name 'two words' is not usable"),
        ({"tools": [plain]}, "plain is a plain function. Declare it"),
        ({"tools": ["search"]}, "'search' is not a tool"),
        ({"tools": search}, r"tools is a list: tools=\[search\]"),
        ({"tools": [search, search]}, "two tools named search"),
        ({"model": "gpt"}, "is not a model"),
        ({"max_iterations": 0}, "max_iterations must be at least 1"),
    ],
)
def test_a_wrong_agent_is_refused(given, text):
    with pytest.raises(ConfigError, match=text):
        Agent(**{"name": "clerk", "model": MODEL, **given})


def test_the_code_digest_changes_with_what_the_agent_runs():
    @tool(replay="safe")
    def again(query: str) -> list[str]:
        return [query, query]

    @tool(replay="unsafe", name="search", description="Search orders.")
    def risky(query: str) -> list[str]:
        return [query]

    given = {"model": MODEL, "tools": [search], "instructions": "be brief"}
    digests = {
        Agent("clerk", **given).code,
        Agent("clerk", **{**given, "model": answer}).code,
        Agent("clerk", **{**given, "tools": [again]}).code,
        Agent("clerk", **{**given, "tools": [risky]}).code,
        Agent("clerk", **{**given, "instructions": "be long"}).code,
        Agent("clerk", **{**given, "max_iterations": 2}).code,
    }
    assert len(digests) == 6


_WITHOUT_SOURCE = """
namespace = {"__name__": "typed_in"}
exec('''
def compare(word: str) -> bool:
    inner = lambda n: n + 1
    return word in {"a", "b", "c", "d", "e"} and inner(1) == 2
''', namespace)
from agentbook.authoring import Agent, tool
from agentbook.models import ScriptedModel
print(Agent("clerk", model=ScriptedModel(["x"]), tools=[tool(replay="safe")(namespace["compare"])]).code)
"""


def test_the_code_digest_is_the_same_in_every_process():
    def digest(seed):
        command = [sys.executable, "-c", _WITHOUT_SOURCE]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert len(digest("1").strip()) == 64
    assert digest("1") == digest("2") == digest("3")


def test_code_without_source_is_known_by_its_bytecode():
    def compiled(text):
        namespace = {"__name__": "typed_in"}
        exec(text, namespace)
        return namespace["f"]

    one, two, three = (compiled(f"def f(x):\n    {body}") for body in ("return x + 1", "return x + 2", "return x.a"))
    assert source(one) == source(compiled("def f(x):\n    return x + 1"))
    assert source(one) != source(two) != source(three)
    assert source(len) == "builtins:len"
