"""A person in a sentence becomes JSON: name, age, city, email, or those of them that are asked for."""

from __future__ import annotations

import json
from collections.abc import Set
from dataclasses import dataclass

from models.recipe.corpus.conversation import Conversation, Turn
from models.recipe.corpus.draw import Draw
from models.recipe.corpus.words import JOBS

FIELDS = ("name", "age", "city", "email")
PERSON_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "city": {"type": "string"},
        "email": {"type": "string"},
    },
    "required": list(FIELDS),
    "additionalProperties": False,
}

# Sentences that hold all four fields; {n} name, {a} age, {c} city, {e} email, {j} a job that is not requested.
_FULL = (
    "{n} is {a} years old[,| and] lives in {c} and [has the email|can be reached at|uses the email] {e}.",
    "{n}, {a}, lives in {c}. [Email|Mail|E-mail|Contact|Write to]: {e}",
    "In {c} lives {n}, aged {a}, [email|whose email is|reachable at] {e}.",
    "My [friend|colleague|neighbour|cousin|boss|{j}] {n} from {c} is {a}; [write to|mail|email] {e}.",
    "Meet {n}. They are {a}, their home is {c} and their email is {e}.",
    "[Hi|Hello], I am {n}, {a} years old, from {c}. My email is {e}.",
    "My name is {n}, I am {a} and I live in {c}. You can [reach|write to|mail] me at {e}.",
    "{n} ({a}) from {c}, {e}",
    "{n} <{e}>, {a} years old, {c}",
    "Name: {n}\nAge: {a}\nCity: {c}\nEmail: {e}",
    "{n}; {a}; {c}; {e}",
    "At {a}, {n} moved to {c}. [Her|His|Their] [new |]address is {e}.",
    "Send it to {e}: {n} is {a} and works as a {j} in {c}.",
    "{n} works as a {j} in {c}. [She|He] is {a} years old and [her|his] email is {e}.",
    "The {j} {n} ([email|mail] {e}) is {a} and lives in {c}.",
    "From {e}: I live in {c}, I am {a} years old, and my name is {n}.",
    "{e} belongs to {n} of {c}, who is {a}.",
    "Yesterday I met {n} in {c}. [She|He] turned {a} last week and gave me [her|his] email, {e}.",
    "You can write to {n} at {e}. [She|He] is {a} and [lives in|comes from|was born in] {c}.",
    "A {a}-year-old {j} from {c} called {n} wrote to us from {e}.",
)
# One clause for each field: those of the fields that are there are joined in any order.
_CLAUSES = {
    "name": ("[The person|The customer|The guest] is called {n}", "[The|Their] name is {n}", "This is {n}"),
    "age": ("[the age|their age] is {a}", "they are {a}[ years old|]", "they turned {a}"),
    "city": ("they live in {c}", "[the city|their city|home] is {c}", "they come from {c}"),
    "email": ("[the email|their email|the address] is {e}", "[mail goes|write] to {e}", "they use {e}"),
}
_WHOLE = (
    "[Extract|Find|Get|Pull out|Read] the person[| from this text| from the text| in this sentence] as JSON",
    "[Give|Return|Write|Send] me [JSON|the JSON|a JSON object] for this person",
    "[Turn|Convert|Change|Make] this into JSON",
    "JSON please",
    "[Extract|Get] the [data|details|information|contact|fields] as JSON",
    "[Extract|Give me|Return] name, age, city and email as JSON",
    "Who is this? Answer [in|with|as] JSON",
    "[Parse|Extract] this[| person| contact]",
    "[Return|Write|Output] a JSON object with name, age, city, email",
    "Person to JSON",
    "Fill in name, age, city and email [as JSON|from this text|in JSON]",
)


@dataclass(frozen=True)
class _Person:
    values: dict[str, object]

    def slots(self, draw: Draw) -> dict[str, object]:
        slots: dict[str, object] = {field[0]: self.values[field] for field in FIELDS}
        return slots | {"j": draw.choice(JOBS)}


def generate(draw: Draw) -> Conversation:
    """All four fields (most often), some of them by name, or four of which some are absent and become null."""
    person = _person(draw)
    roll = draw.random.random()
    if roll < 0.7:
        text, wanted, present = _full_sentence(draw, person), FIELDS, set(FIELDS)
        order = draw.choice(_WHOLE)
    elif roll < 0.85:
        wanted = tuple(draw.sample(FIELDS, draw.choice((1, 2, 2, 3, 3))))
        text, present = _full_sentence(draw, person), set(FIELDS)
        listed = (
            wanted[0]
            if len(wanted) == 1
            else ", ".join(wanted[:-1]) + draw.choice((" and ", ", ")) + wanted[-1]
        )
        order = "[Extract|Give me|Return|Get|I need|Write] {f} as JSON".replace("{f}", listed)
    else:
        present = set(draw.sample(FIELDS, draw.choice((1, 2, 3, 3))))
        wanted, text = FIELDS, _clauses(draw, person, present)
        order = draw.choice(_WHOLE)
    answer = json.dumps(
        {field: person.values[field] if field in present else None for field in wanted}, ensure_ascii=False
    )
    return _compose(draw, draw.phrase(order), text, answer)


def generate_full(draw: Draw) -> Conversation:
    """All four fields from a full sentence, for the schema-constrained evaluation."""
    person = _person(draw)
    answer = json.dumps(person.values, ensure_ascii=False)
    return _compose(draw, draw.phrase(draw.choice(_WHOLE)), _full_sentence(draw, person), answer)


def _person(draw: Draw) -> _Person:
    name = draw.full_name() if draw.chance(0.85) else draw.given_name()
    return _Person({"name": name, "age": draw.number(1, 99), "city": draw.city(), "email": draw.email(name)})


def _full_sentence(draw: Draw, person: _Person) -> str:
    return draw.phrase(draw.choice(_FULL), **person.slots(draw))


def _clauses(draw: Draw, person: _Person, present: Set[str]) -> str:
    fields = draw.sample(sorted(present), len(present))
    slots = person.slots(draw)
    clauses = [draw.phrase(draw.choice(_CLAUSES[field]), **slots) for field in fields]
    text = draw.choice((", ", " and ", "; ")).join(clauses) + "."
    return text[0].upper() + text[1:]


def _compose(draw: Draw, order: str, text: str, answer: str) -> Conversation:
    roll = draw.random.random()
    system = None
    if roll < 0.55:
        question = order + draw.choice((": ", ". ", ":\n", ":\n\n", " - ")) + text
    elif roll < 0.8:
        question = text + draw.choice((" ", "\n", "\n\n")) + order + draw.choice((".", "", "!"))
    elif roll < 0.9:
        question = f'{order}: "{text}"'
    else:
        system, question = order + draw.choice((".", "")), text
    return Conversation(
        (Turn("user", question), Turn("assistant", answer)),
        system=system,
        thought="I copy each field into JSON.",
    )
