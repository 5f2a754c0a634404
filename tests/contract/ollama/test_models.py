"""Ollama's routes that show and change models, over a real folder, a hub on loopback and fake engines."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncGenerator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from jan_serve.dialects.ollama.routes import VERSION
from tests.integration.store.conftest import FILE, REPO, model_bytes
from tests.support.engine.fake_vocabulary import CHAT_TEMPLATE, THINKING_TEMPLATE
from tests.support.servers.fake_hub import FakeRepo, Fault, running_hub
from tests.support.servers.managed import Managed, add_model, managed_app
from tests.unit.store.gguf_builder import GgufBytes, string_key, strings_key, uint_key

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

HEADER = (
    uint_key("llama.context_length", 40_000),
    uint_key("llama.embedding_length", 64),
    uint_key("general.file_type", 7),
    string_key("general.basename", "Tiny"),
    strings_key("general.tags", list("abcdef")),
)


def gguf(*keys: bytes, template: str | None = CHAT_TEMPLATE) -> bytes:
    more = () if template is None else (string_key("tokenizer.chat_template", template),)
    return GgufBytes(keys=(*HEADER, *more, *keys)).build()


@pytest.fixture
async def managed(tmp_path: Path) -> AsyncGenerator[Managed]:
    with running_hub() as hub:
        hub.repos[REPO] = FakeRepo({FILE: model_bytes(1 << 16)})
        add_model(tmp_path, "chat", gguf())
        add_model(tmp_path, "org/thinks", gguf(template=THINKING_TEMPLATE))
        add_model(tmp_path, "no-template", gguf(template=None))
        add_model(tmp_path, "embeds", gguf(uint_key("llama.pooling_type", 1), template=None))
        fim = [uint_key(f"tokenizer.ggml.fim_{role}_token_id", 1) for role in ("pre", "suf", "mid")]
        add_model(tmp_path, "infills", gguf(*fim))
        add_model(tmp_path, "broken", b"GGUF")
        async with managed_app(tmp_path, hub=hub.url) as managed:
            await managed.library.start_reading()
            yield managed


async def post(managed: Managed, path: str, **body: Any) -> Any:
    response = await managed.client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def names(managed: Managed) -> list[str]:
    return [row["name"] for row in (await managed.client.get("/api/tags")).json()["models"]]


async def test_every_usable_model_is_listed_with_all_that_clients_require(managed: Managed) -> None:
    rows = {row["name"]: row for row in (await managed.client.get("/api/tags")).json()["models"]}
    assert rows.keys() == {
        "chat:latest", "org/thinks:latest", "no-template:latest", "embeds:latest", "infills:latest",
        "jan-tiny:latest",
    }  # fmt: skip
    row = rows["chat:latest"]
    assert list(row) == ["name", "model", "modified_at", "size", "digest", "details", "capabilities"]
    assert row["model"] == "chat:latest"
    assert row["size"] == (managed.folder / "chat.gguf").stat().st_size
    assert re.fullmatch(r"[0-9a-f]{64}", row["digest"])
    assert row["details"] == {
        "parent_model": "", "format": "gguf", "family": "llama", "families": ["llama"], "parameter_size": "64",
        "quantization_level": "Q8_0",
    }  # fmt: skip
    assert datetime.fromisoformat(row["modified_at"]).tzinfo is not None
    again = {row["name"]: row for row in (await managed.client.get("/api/tags")).json()["models"]}
    assert again == rows
    probed = await managed.client.head("/api/tags")
    assert (probed.status_code, probed.content) == (200, b"")


async def test_lists_have_the_capabilities_that_show_has(managed: Managed) -> None:
    created = {"model": "taught", "from": "no-template", "template": THINKING_TEMPLATE, "stream": False}
    await post(managed, "/api/create", **created)
    rows = (await managed.client.get("/api/tags")).json()["models"]
    assert {row["name"]: row["capabilities"] for row in rows} == {
        row["name"]: (await post(managed, "/api/show", model=row["name"]))["capabilities"] for row in rows
    }
    listed = {row["name"]: row["capabilities"] for row in rows}
    assert listed["taught:latest"] == ["completion", "tools", "thinking"]
    assert listed["no-template:latest"] == ["completion"]
    for name, (expected, _) in SHOWN.items():
        assert listed[name if ":" in name else f"{name}:latest"] == expected


async def test_the_list_never_waits_for_a_load(tmp_path: Path) -> None:
    """This one does not end."""
    for number in range(100):
        add_model(tmp_path, f"many/m{number}", gguf())
    add_model(tmp_path, "hang-on-load")
    async with managed_app(tmp_path) as managed:
        await managed.library.start_reading()
        load = await managed.client.post("/models/load", json={"model": "hang-on-load", "wait": False})
        assert load.status_code == 200
        assert len(await names(managed)) == 102


SHOWN = {
    "chat": (["completion", "tools"], CHAT_TEMPLATE),
    "org/thinks:latest": (["completion", "tools", "thinking"], THINKING_TEMPLATE),
    "no-template": (["completion"], None),
    "embeds": (["embedding"], None),
    "infills": (["completion", "tools", "insert"], CHAT_TEMPLATE),
}


@pytest.mark.parametrize("name", SHOWN)
async def test_a_model_is_shown_without_being_loaded(managed: Managed, name: str) -> None:
    reply = await post(managed, "/api/show", model=name)
    capabilities, template = SHOWN[name]
    assert reply["capabilities"] == capabilities
    assert reply.get("template") == template
    info = reply["model_info"]
    assert info["general.architecture"] == "llama"
    assert info["general.basename"] == "Tiny"
    assert info["general.tags"] == []
    assert "tokenizer.chat_template" not in info
    # The context that a load gives, not the trained one: clients budget prompts with it.
    assert info["llama.context_length"] == reply["details"]["context_length"] == 32_768
    assert reply["details"]["embedding_length"] == 64
    assert managed.manager.snapshot().models == ()
    assert await post(managed, "/api/show", name=name) == reply
    assert await post(managed, "/api/show", model=f"{name.removesuffix(':latest').upper()}:Latest") == reply


async def test_verbose_shows_arrays_and_tensors(managed: Managed) -> None:
    reply = await post(managed, "/api/show", model="chat", verbose=True)
    assert reply["model_info"]["general.tags"] == list("abcdef")
    assert reply["tensors"][0].keys() == {"name", "type", "shape"}


async def test_the_shown_context_is_that_of_the_loaded_model(managed: Managed) -> None:
    await post(managed, "/api/generate", model="chat")
    reply = await post(managed, "/api/show", model="chat")
    assert reply["model_info"]["llama.context_length"] == 4096


async def test_models_that_cannot_be_shown(managed: Managed) -> None:
    for body, status, text in (
        ({"model": "x"}, 404, "model 'x' not found"),
        ({}, 400, "model is required"),
        ({"model": "broken"}, 422, "broken.gguf is not a valid GGUF file"),
    ):
        response = await managed.client.post("/api/show", json=body)
        assert response.status_code == status
        assert response.json()["error"].startswith(text)


@pytest.mark.parametrize("keep_alive", [1e9, 1e17, 1e300, "999999999999999h"])
async def test_a_model_that_stays_for_ages_is_listed(managed: Managed, keep_alive: float | str) -> None:
    await post(managed, "/api/generate", model="chat", keep_alive=keep_alive)
    [row] = (await managed.client.get("/api/ps")).json()["models"]
    assert (datetime.fromisoformat(row["expires_at"]) - datetime.now().astimezone()).days > 10_000


async def test_models_in_memory(managed: Managed) -> None:
    await post(managed, "/api/generate", model="chat", keep_alive=-1)
    await post(managed, "/api/embed", model="embeds", input="a", keep_alive="10m")
    first, second = (await managed.client.get("/api/ps")).json()["models"]
    assert list(first) == [
        "name", "model", "size", "digest", "details", "expires_at", "size_vram", "context_length",
    ]  # fmt: skip
    assert (first["name"], second["name"]) == ("chat:latest", "embeds:latest")
    assert first["context_length"] == 4096
    assert (first["size"] > 0, first["size_vram"]) == (True, 0)
    now = datetime.now().astimezone()
    assert (datetime.fromisoformat(first["expires_at"]) - now).days > 100_000
    assert 500 < (datetime.fromisoformat(second["expires_at"]) - now).total_seconds() <= 600
    for name in ("chat:latest", "embeds"):
        reply = await post(managed, "/api/generate", model=name, keep_alive=0)
        assert reply["done_reason"] == "unload"
    assert (await managed.client.get("/api/ps")).json() == {"models": []}
    assert (await post(managed, "/api/chat", model="chat", keep_alive=0))["done_reason"] == "unload"


async def progress(managed: Managed, **body: Any) -> list[Any]:
    response = await managed.client.post("/api/pull", json=body)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/x-ndjson")
    return [json.loads(line) for line in response.text.splitlines()]


@pytest.mark.parametrize("name", [f"hf.co/{REPO}:Q8_0", f"{REPO}:latest"])
async def test_a_pull_tells_its_progress(managed: Managed, name: str) -> None:
    content = model_bytes(1 << 16)
    sha256 = hashlib.sha256(content).hexdigest()
    found = await progress(managed, model=name)
    assert [each["status"] for each in found if "digest" not in each] == [
        "pulling manifest", "verifying sha256 digest", "writing manifest", "success",
    ]  # fmt: skip
    counts = [each for each in found if "digest" in each]
    assert {(each["status"], each["digest"], each["total"]) for each in counts} == {
        (f"pulling {sha256[:12]}", f"sha256:{sha256}", len(content))
    }
    completed = [each["completed"] for each in counts]
    assert completed == sorted(completed)
    assert completed[-1] == len(content)
    assert await post(managed, "/api/pull", name=name, stream=False) == {"status": "success"}
    listed = next(
        row for row in (await managed.client.get("/api/tags")).json()["models"] if "Tiny-Q8_0" in row["name"]
    )
    assert listed["digest"] == sha256
    assert (await post(managed, "/api/generate", model=name))["done_reason"] == "load"


async def test_pulls_that_fail(managed: Managed, tmp_path: Path) -> None:
    for name, status in (("nobody/nothing:Q8_0", 404), ("llama3.2:1b", 404), ("../x", 400)):
        response = await managed.client.post("/api/pull", json={"model": name})
        assert response.status_code == status, response.text
        assert list(response.json()) == ["error"]


async def test_a_pull_that_breaks_ends_with_its_error(tmp_path: Path) -> None:
    with running_hub() as hub:
        hub.repos[REPO] = FakeRepo({FILE: model_bytes(1 << 16)})
        hub.file_faults.append(Fault(flip_at=1 << 15))
        async with managed_app(tmp_path, hub=hub.url) as managed:
            found = await progress(managed, model=f"{REPO}:Q8_0")
            assert list(found[-1]) == ["error"]
            assert "success" not in [each.get("status") for each in found]


async def test_a_model_is_deleted(managed: Managed) -> None:
    response = await managed.client.request("DELETE", "/api/delete", json={"model": "chat:latest"})
    assert (response.status_code, response.content) == (200, b"")
    assert "chat:latest" not in await names(managed)
    again = await managed.client.request("DELETE", "/api/delete", json={"name": "chat"})
    assert (again.status_code, again.json()) == (404, {"error": "model 'chat' not found"})
    built_in = await managed.client.request("DELETE", "/api/delete", json={"model": "jan-tiny"})
    assert built_in.status_code == 400


async def test_a_copy_is_a_name_that_every_protocol_knows(managed: Managed) -> None:
    copied = await managed.client.post("/api/copy", json={"source": "chat", "destination": "other:v1"})
    assert (copied.status_code, copied.content) == (200, b"")
    assert "other:v1" in await names(managed)
    assert (await post(managed, "/api/show", model="OTHER:v1"))["capabilities"] == ["completion", "tools"]
    chat = [{"role": "user", "content": "!say hi"}]
    assert (await post(managed, "/api/chat", model="other:v1", messages=chat, stream=False))["message"] == {
        "role": "assistant",
        "content": "hi",
    }
    openai = await post(managed, "/v1/chat/completions", model="other:v1", messages=chat)
    assert openai["choices"][0]["message"]["content"] == "hi"
    assert len(managed.manager.snapshot().models) == 1
    missing = await managed.client.post("/api/copy", json={"source": "x", "destination": "y"})
    assert (missing.status_code, missing.json()) == (404, {"error": 'model "x" not found'})
    taken = await managed.client.post("/api/copy", json={"source": "chat", "destination": "jan-tiny"})
    assert taken.status_code == 400
    original = await managed.client.request("DELETE", "/api/delete", json={"model": "chat"})
    assert original.status_code == 400
    assert "other:v1" in original.json()["error"]
    await managed.client.request("DELETE", "/api/delete", json={"model": "other:v1"})
    assert "other:v1" not in await names(managed)
    assert (managed.folder / "chat.gguf").exists()


MARIO: dict[str, Any] = {
    "model": "mario",
    "from": "chat",
    "system": "You are Mario.",
    "parameters": {"temperature": 0, "stop": ["Z"], "num_predict": 9},
    "messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Me."}],
    "license": ["A", "B"],
}


async def test_a_variant_has_its_own_instructions_and_defaults(managed: Managed) -> None:
    created = await managed.client.post("/api/create", json=MARIO)
    assert [json.loads(line) for line in created.text.splitlines()] == [
        {"status": "writing manifest"},
        {"status": "success"},
    ]
    shown = await post(managed, "/api/show", model="mario:latest")
    assert (shown["system"], shown["license"], shown["messages"]) == (
        "You are Mario.", "A\nB", MARIO["messages"]
    )  # fmt: skip
    assert [line.split() for line in shown["parameters"].splitlines()] == [
        ["temperature", "0"], ["stop", '"Z"'], ["num_predict", "9"],
    ]  # fmt: skip
    assert "FROM chat:latest" in shown["modelfile"]
    asked = [{"role": "user", "content": "!echo"}]
    before = (
        "<|im_start|>system\nYou are Mario.<|im_end|>\n<|im_start|>user\nWho?<|im_end|>\n"
        "<|im_start|>assistant\nMe.<|im_end|>\n<|im_start|>user\n!echo<|im_end|>\n"
    )
    for path, text in (("/api/chat", "message"), ("/v1/chat/completions", "choices")):
        body = {"model": "mario", "messages": asked, "stream": False, "options": {"num_predict": -1}}
        reply = await post(managed, path, **(body if "api" in path else {**body, "max_tokens": 4_000}))
        content = reply["message"]["content"] if text == "message" else reply[text][0]["message"]["content"]
        assert content.startswith(before)
    short = await post(managed, "/api/chat", model="mario", messages=asked, stream=False)
    assert (short["message"]["content"], short["eval_count"]) == (before[:9], 9)
    own = [{"role": "system", "content": "Be Luigi."}, *asked]
    reply = await post(
        managed, "/api/chat", model="mario", messages=own, stream=False, options={"num_predict": -1}
    )
    assert "Mario" not in reply["message"]["content"]
    assert "Be Luigi." in reply["message"]["content"]


async def test_a_variant_is_counted_and_rendered_as_it_is_asked(managed: Managed) -> None:
    await post(managed, "/api/create", **MARIO, stream=False)
    asked = {"model": "mario", "messages": [{"role": "user", "content": "Hi"}]}
    used = (await post(managed, "/v1/chat/completions", **asked))["usage"]["prompt_tokens"]
    counted = await post(managed, "/v1/messages/count_tokens", **asked)
    assert counted["input_tokens"] == used
    counted = await post(managed, "/v1/responses/input_tokens", model="mario", input="Hi")
    assert counted["input_tokens"] == used
    shown = (await post(managed, "/apply-template", **asked))["prompt"]
    assert shown.startswith("<|im_start|>system\nYou are Mario.<|im_end|>\n<|im_start|>user\nWho?")
    tokenized = await post(managed, "/tgi/chat_tokenize", **asked)
    assert tokenized["templated_text"] == shown
    answer = await post(managed, "/tgi/v1/chat/completions", **asked)
    assert answer["usage"]["prompt_tokens"] == len(tokenized["tokenize_response"])
    echo = {"model": "mario", "messages": [{"role": "user", "content": "!echo"}]}
    echoed = await post(managed, "/tgi/v1/chat/completions", **echo)
    assert echoed["usage"]["completion_tokens"] == 9, "num_predict of the variant"
    assert echoed["choices"][0]["finish_reason"] == "length"


async def test_a_variant_of_a_variant_inherits(managed: Managed) -> None:
    await post(managed, "/api/create", **MARIO, stream=False)
    await post(
        managed,
        "/api/create",
        model="luigi",
        **{"from": "mario"},
        parameters={"temperature": 1},
        stream=False,
    )
    shown = await post(managed, "/api/show", model="luigi")
    assert shown["system"] == "You are Mario."
    assert shown["parameters"].split()[:2] == ["temperature", "1"]
    await post(managed, "/api/create", model="luigi", **{"from": "chat"}, system="New.", stream=False)
    replaced = await post(managed, "/api/show", model="luigi")
    assert (replaced["system"], "parameters" in replaced) == ("New.", False)


@pytest.mark.parametrize(
    "template",
    [
        "{{ range(9)|join }}", "{{- range(2, 9)|list -}}", "{{range(9)|join}}", "{{ range | string }}",
        "{% for i in range(2) %}{{ i }}{% endfor %}", "{{ block }}", "{{ end }}", "{{ with }}", "{{ else_ }}",
        "{{ template if template is defined else 'x' }}", "{{ range is defined }}", "{{ define + 'x' }}",
    ],
)  # fmt: skip
async def test_a_template_of_jinja_is_not_taken_for_one_of_go(managed: Managed, template: str) -> None:
    await post(managed, "/api/create", model="v", **{"from": "chat"}, template=template, stream=False)
    assert (await post(managed, "/api/show", model="v"))["template"] == template


GO_TEMPLATES = [
    "{{ .Prompt }}", "{{.System}}", "{{- $last := .Messages }}", "{{ range .Messages }}x{{ end }}",
    "{{- range $i, $m := .Messages -}}", "{{ if and .System .Tools }}x{{ else }}y{{ end }}",
    "{{ if eq .Role \"user\" }}x{{ end }}", "{{ with or .System .Prompt }}x{{ end }}",
    "{{ with .System }}x{{ end }}", "{{ define \"x\" }}", "{{ template \"x\" . }}", "{{ block \"x\" . }}",
    "{{/* a comment */}}", "{{ if not .System }}x{{ end }}", "{{ range slice .Messages 1 }}x{{ end }}",
]  # fmt: skip


@pytest.mark.parametrize("template", GO_TEMPLATES)
async def test_a_template_of_go_is_left_out_and_told_of(managed: Managed, template: str) -> None:
    body = {"model": "v", "from": "chat", "template": template, "system": "Be brief."}
    answer = await managed.client.post("/api/create", json=body)
    told, *steps = [json.loads(line)["status"] for line in answer.text.splitlines()]
    assert "template: Go's language" in told
    assert steps == ["writing manifest", "success"]
    assert answer.headers["x-jan-serve-warning"] == told
    shown, base = [await post(managed, "/api/show", model=name) for name in ("v", "chat")]
    assert shown["template"] == base["template"]
    assert shown["system"] == "Be brief."


async def test_a_template_of_a_variant(managed: Managed) -> None:
    template = "{% for m in messages %}[{{ m.content }}]{% endfor %}"
    await post(managed, "/api/create", model="v", **{"from": "chat"}, template=template, stream=False)
    assert (await post(managed, "/api/show", model="v"))["template"] == template
    reply = await post(
        managed, "/api/chat", model="v", messages=[{"role": "user", "content": "!echo"}], stream=False
    )
    assert reply["message"]["content"] == "[!echo]"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"from": "chat", "quantize": "q4_K_M"}, "quantize: not supported"),
        ({"from": "chat", "adapters": {"a": "sha256:0"}}, "digest: must be `sha256:`"),
        ({"from": "chat", "adapters": {"a": "sha256:" + "0" * 64}}, "adapters: sha256:000"),
        ({"from": "chat", "adapters": {"a": "b", "c": "d"}}, "adapters: one GGUF file"),
        ({"files": {"a": "b"}, "adapters": {"a": "b"}}, "adapters: one GGUF file"),
        ({"modelfile": "FROM chat"}, "modelfile: not supported"),
        ({}, "either `from` or `files` is needed"),
        ({"from": "chat", "files": {"a": "b"}}, "either `from` or `files` is needed"),
        ({"files": {"a": "b", "c": "d"}}, "files: one GGUF file"),
        ({"files": {"a": "b"}}, "digest: must be `sha256:`"),
        ({"files": {"a": "sha256:" + "0" * 64}}, "files: sha256:000"),
        ({"from": "chat", "parameters": {"top_k": "x"}}, 'option "top_k" must be of type integer'),
        ({"from": "chat", "model": "jan-tiny"}, "`jan-tiny` is a name of the model jan-tiny"),
        ({"from": "chat", "model": "../x"}, "The model name"),
    ],
)  # fmt: skip
async def test_what_is_not_created(managed: Managed, body: dict[str, Any], text: str) -> None:
    response = await managed.client.post("/api/create", json={"model": "v"} | body)
    assert (response.status_code, response.json()["error"][: len(text)]) == (400, text)
    missing = await managed.client.post("/api/create", json={"model": "v", "from": "x"})
    assert (missing.status_code, missing.json()) == (404, {"error": "model 'x' not found"})


async def test_a_model_is_made_of_an_upload(managed: Managed) -> None:
    content = gguf()
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    path = f"/api/blobs/{digest}"
    client = managed.client
    assert (await client.head(path)).status_code == 404
    wrong = await client.post(path, content=content[:-1])
    assert wrong.status_code == 400
    assert wrong.json()["error"].startswith("digest mismatch")
    headers = {"content-type": "application/octet-stream"}
    assert (await client.post(path, content=content, headers=headers)).status_code == 201
    assert (await client.post(path, content=content)).status_code == 200
    assert (await client.head(path)).status_code == 200
    files = {"m.gguf": digest}
    await post(managed, "/api/create", model="mine:1b", files=files, system="S", stream=False)
    assert "mine:1b" in await names(managed)
    assert (managed.folder / "created" / "mine-1b.gguf").read_bytes() == content
    again = await client.post("/api/create", json={"model": "mine:1b", "files": files})
    assert again.status_code == 400
    assert (await client.head(path)).status_code == 200
    await post(managed, "/api/create", model="second", files=files, stream=False)
    for name in ("mine:1b", "second"):
        gone = await client.request("DELETE", "/api/delete", json={"model": name})
        assert gone.status_code == 200
    assert not (managed.folder / "created").exists()
    assert (await client.head(path)).status_code == 404


async def test_uploads_that_are_no_models(managed: Managed) -> None:
    digest = f"sha256:{hashlib.sha256(b'junk').hexdigest()}"
    assert (await managed.client.post(f"/api/blobs/{digest}", content=b"junk")).status_code == 201
    response = await managed.client.post("/api/create", json={"model": "v", "files": {"a": digest}})
    assert response.status_code == 422
    for name in ("a:b:c", "x" * 300, "nul"):
        response = await managed.client.post("/api/create", json={"model": name, "files": {"a": digest}})
        assert response.status_code in (400, 422)
    page = {"origin": "http://localhost:3000", "content-type": "application/octet-stream"}
    refused = await managed.client.post(f"/api/blobs/{digest}", content=b"junk", headers=page)
    assert refused.status_code == 415


async def test_an_adapter_that_does_not_fit_is_not_kept(managed: Managed) -> None:
    content = gguf()
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert (await managed.client.post(f"/api/blobs/{digest}", content=content)).status_code == 201
    body = {"model": "sql", "from": "chat", "adapters": {"sql.gguf": digest}}
    response = await managed.client.post("/api/create", json=body)
    assert response.status_code == 422
    assert "The LoRA adapter `sql` cannot be used" in response.json()["error"]
    assert "sql:latest" not in await names(managed)


async def test_lm_studios_list(managed: Managed) -> None:
    await post(managed, "/api/generate", model="chat")
    listed = (await managed.client.get("/api/v0/models")).json()
    assert listed["object"] == "list"
    rows = {row["id"]: row for row in listed["data"]}
    assert rows["chat"] == {
        "id": "chat", "object": "model", "type": "llm", "publisher": "", "arch": "llama",
        "compatibility_type": "gguf", "quantization": "Q8_0", "state": "loaded", "max_context_length": 40_000,
        "loaded_context_length": 4096,
    }  # fmt: skip
    assert (rows["embeds"]["type"], rows["embeds"]["state"]) == ("embeddings", "not-loaded")
    assert rows["org/thinks"]["publisher"] == "org"
    assert (await managed.client.get("/api/v0/models/org/thinks")).json() == rows["org/thinks"]
    missing = await managed.client.get("/api/v0/models/x")
    assert (missing.status_code, list(missing.json())) == (404, ["error"])


def test_the_version_is_a_number() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", VERSION)
