"""The tools of the corpus: a hand-written set, and an endless one put together from verbs and nouns."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from models.recipe.corpus import words
from models.recipe.corpus.conversation import Tool
from models.recipe.corpus.draw import Draw

Value = str | int
MakeValue = Callable[[Draw], Value]


@dataclass(frozen=True)
class Parameter:
    """An argument: the generator of its value, its JSON type, description, and permitted values if listed."""

    make: MakeValue
    kind: str = "string"
    note: str = ""
    options: tuple[str, ...] = ()

    def schema(self, *, with_note: bool) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": self.kind}
        if self.options:
            schema["enum"] = list(self.options)
        if self.note and with_note:
            schema["description"] = self.note
        return schema


@dataclass(frozen=True)
class Spec:
    """A tool, sentences that request it, its result and the sentence for the result. Slots are argument names.

    ``told_by_name``: the name describes it well enough that clients may omit the description.
    """

    name: str
    description: str
    parameters: Mapping[str, Parameter]
    asks: tuple[str, ...]
    result: Mapping[str, MakeValue]
    reply: str
    told_by_name: bool = True


def definition(draw: Draw, spec: Spec) -> Tool:
    """The tool as a client sends it, with the small differences that clients have."""
    parameters = _titled_parameters(spec) if draw.chance(0.12) else _plain_parameters(draw, spec)
    function: dict[str, Any] = {"name": spec.name, "description": spec.description, "parameters": parameters}
    if draw.chance(0.1) and spec.told_by_name:
        function = {key: function[key] for key in ("name", "parameters")}
    if draw.chance(0.1):
        function["strict"] = True
    tool = {"type": "function", "function": function}
    return _sorted(tool) if draw.chance(0.15) else tool


def _plain_parameters(draw: Draw, spec: Spec) -> dict[str, Any]:
    with_note = draw.chance(0.5)
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {name: part.schema(with_note=with_note) for name, part in spec.parameters.items()},
    }
    if draw.chance(0.85):
        parameters["required"] = list(spec.parameters)
    if draw.chance(0.15):
        parameters["additionalProperties"] = False
    return parameters


def _titled_parameters(spec: Spec) -> dict[str, Any]:
    """As pydantic writes a model's schema: titles everywhere, keys in alphabetical order."""
    titled = {
        name: {**part.schema(with_note=False), "title": name.replace("_", " ").title()}
        for name, part in spec.parameters.items()
    }
    title = spec.name.replace("_", " ").title().replace(" ", "")
    return {
        "properties": {name: _sorted(schema) for name, schema in titled.items()},
        "required": list(spec.parameters),
        "title": title,
        "type": "object",
    }


def _sorted(value: Any) -> Any:
    """The same object with its keys in alphabetical order, as plain Jinja's ``tojson`` writes it."""
    return {key: _sorted(value[key]) for key in sorted(value)} if isinstance(value, dict) else value


def _one_of(*options: str) -> Parameter:
    return Parameter(lambda draw: draw.choice(options), options=options)


def _small(draw: Draw) -> int:
    return draw.between(2, 20)


def _clock(draw: Draw) -> str:
    return f"{draw.between(0, 23):02}:{draw.choice(('00', '05', '10', '15', '20', '30', '40', '45', '50'))}"


def _date(draw: Draw) -> str:
    return f"{draw.between(1, 28)} {draw.choice(words.MONTHS)}"


def _noun(draw: Draw) -> str:
    return draw.choice(words.NOUNS)


def _amount(draw: Draw) -> int:
    return draw.number(2, 990)


_SLOT = re.compile(r"(\{\w+\})")
_WEATHER = ("sunny", "cloudy", "rainy", "windy", "foggy", "snowy")
_CITY = Parameter(Draw.city, note="Name of the city")
_NAME = Parameter(Draw.given_name, note="Name of the person")
_TITLE = Parameter(Draw.title, note="The title")

HAND_WRITTEN: tuple[Spec, ...] = (
    Spec(
        "get_weather", "Get the current weather for a city", {"city": _CITY},
        ("[What is|What's|How is] the weather [in|like in] {city}[| today| now]?", "Is it [raining|sunny|cold|warm|snowing] in {city}[| today| now]?", "[Tell me|Check|Get me] the weather [in|for] {city}.", "Weather in {city}?", "Do I need [an umbrella|a coat] in {city}?", "How [hot|cold|warm] is it in {city}?"),
        {"condition": lambda draw: draw.choice(_WEATHER), "degrees": lambda draw: draw.between(-9, 39)},
        "It is {condition} in {city}, {degrees} degrees.",
    ),
    Spec(
        "find_train", "Find the next train to a city", {"city": _CITY},
        ("[Find|Get|Show] me [a|the next] train to {city}.", "When [is|does] the next train to {city}[| leave]?", "I need a train to {city}.", "Which train goes to {city}?", "I want to go to {city} by train."),
        {"time": _clock, "platform": _small},
        "The next train to {city} leaves at {time} from platform {platform}.",
    ),
    Spec(
        "book_flight", "Book a flight between two cities", {"origin": _CITY, "destination": _CITY},
        ("Book [me |]a flight from {origin} to {destination}.", "I [want|need] to fly from {origin} to {destination}.", "Get me a plane from {origin} to {destination}.", "A flight from {origin} to {destination}, please.", "Fly me to {destination} from {origin}."),
        {"flight": lambda draw: f"{draw.choice('ABCDEFGHKL')}{draw.choice('ABCDEFGHKL')}{draw.number(100, 999)}", "price": _amount},
        "Flight {flight} from {origin} to {destination} is booked for {price} euros.",
    ),
    Spec(
        "play_song", "Play a song", {"title": _TITLE},
        ("[Play|Put on|Start] {title}[|, please].", "[Play|Put on] the song {title}.", "I want to hear {title}.", "Can you play {title}?", "Let me listen to {title}."),
        {"status": lambda draw: draw.choice(("playing", "queued"))},
        "{title} is {status}.",
    ),
    Spec(
        "call_person", "Make a phone call to a person", {"name": _NAME},
        ("[Call|Phone|Ring] {name}[| now|, please].", "Give {name} a call.", "I need to [talk|speak] to {name} on the phone.", "Can you call {name}[| for me]?", "Make a phone call to {name}."),
        {"status": lambda draw: draw.choice(("connected", "busy", "unavailable"))},
        "{name} is {status}.",
    ),
    Spec(
        "send_message", "Send a text message to a person", {"name": _NAME, "text": Parameter(lambda draw: draw.choice(_TEXTS), note="The message")},
        ("[Send|Write] {name} a message: {text}", "[Send|Write] a message to {name}: {text}", "Tell {name} by message: {text}", "Text {name}: {text}", "Message {name} '{text}'"),
        {"status": lambda draw: draw.choice(("sent", "delivered"))},
        "The message to {name} was {status}.",
    ),
    Spec(
        "set_timer", "Set a timer", {"minutes": Parameter(lambda draw: draw.number(1, 120), "integer", "Length in minutes")},
        ("[Set|Start] a timer for {minutes} minutes.", "Timer, {minutes} minutes.", "Wake me in {minutes} minutes.", "[Set|Start] a {minutes} minute timer.", "Tell me when {minutes} minutes are over."),
        {"ends_at": _clock},
        "The timer ends at {ends_at}.",
    ),
    Spec(
        "set_alarm", "Set an alarm at a time of day", {"time": Parameter(_clock, note="Time as HH:MM")},
        ("[Set|Make] an alarm [for|at] {time}.", "Wake me [up |]at {time}.", "Alarm at {time}[|, please].", "I have to get up at {time}.", "Ring at {time}."),
        {"status": lambda draw: draw.choice(("set", "active"))},
        "The alarm for {time} is {status}.",
    ),
    Spec(
        "convert_currency", "Convert an amount of money", {"amount": Parameter(_amount, "integer", "Amount to convert"), "source": _one_of("USD", "EUR", "GBP", "JPY", "CHF"), "target": _one_of("SEK", "NOK", "PLN", "CAD", "AUD")},
        ("[Convert|Change] {amount} {source} [to|into] {target}.", "How much is {amount} {source} in {target}?", "What are {amount} {source} in {target}?", "{amount} {source} to {target}", "I have {amount} {source}. How many {target} is that?"),
        {"result": _amount},
        "{amount} {source} are {result} {target}.",
    ),
    Spec(
        "get_stock_price", "Get the price of a company's stock", {"company": Parameter(lambda draw: draw.invented().capitalize(), note="Name of the company")},
        ("[What is|Get|Tell me] the [stock|share] price of {company}[|, please].", "How much is a share of {company}?", "What does {company} stock cost?", "Price of {company} [stock|shares]?", "How is the {company} stock doing?"),
        {"price": _amount},
        "A share of {company} costs {price}.",
    ),
    Spec(
        "search_web", "Search the web", {"query": Parameter(lambda draw: draw.choice(words.TOPICS) if draw.chance(0.4) else draw.title(), note="What to search for")},
        ("[Search|Look on] the web for {query}.", "[Search|Google|Look up] {query}[| on the web| online].", "Find [pages|something|articles] about {query}[| on the web| online].", "What does the web say about {query}?", "Do a web search for {query}."),
        {"hits": _amount},
        "I found {hits} pages about {query}.",
    ),
    Spec(
        "add_event", "Add an event to the calendar", {"title": _TITLE, "date": Parameter(_date, note="Day and month")},
        ("Add {title} to [my|the] calendar on {date}.", "Put {title} in [my|the] calendar for {date}.", "[Make|Create] an event {title} on {date}.", "Schedule {title} on {date}.", "On {date} I have {title}. Add it to my calendar."),
        {"status": lambda draw: draw.choice(("saved", "added"))},
        "{title} on {date} is {status}.",
    ),
    Spec(
        "create_note", "Save a note", {"text": Parameter(lambda draw: draw.choice(_TEXTS), note="Text of the note")},
        ("[Make|Save|Write|Take] a note: {text}", "Note: {text}", "[Write down|Note down]: {text}", "New note: {text}", "Please note this: {text}"),
        {"id": _amount},
        "Saved as note {id}.",
    ),
    Spec(
        "turn_on_light", "Turn on the light in a room", {"room": _one_of("kitchen", "bedroom", "bathroom", "hall", "garage", "office")},
        ("[Turn|Switch] on the [light|lights|lamp] in the {room}.", "[Turn|Switch] the {room} [light|lights] on.", "[Light|Lights] on in the {room}.", "It is dark in the {room}.", "I need light in the {room}."),
        {"status": lambda draw: draw.choice(("on", "broken"))},
        "The light in the {room} is {status}.",
    ),
    Spec(
        "set_temperature", "Set the temperature of a room", {"room": _one_of("kitchen", "bedroom", "bathroom", "hall", "garage", "office"), "degrees": Parameter(lambda draw: draw.between(10, 30), "integer", "Degrees Celsius")},
        ("[Set|Heat|Cool] the {room} to {degrees} degrees.", "I want {degrees} degrees in the {room}.", "Make it {degrees} degrees in the {room}.", "The {room} should be {degrees} degrees.", "{degrees} degrees in the {room}, please."),
        {"status": lambda draw: draw.choice(("heating", "cooling", "ready"))},
        "The {room} is {status}.",
    ),
    Spec(
        "order_food", "Order food for delivery", {"dish": Parameter(lambda draw: draw.choice(words.FOODS), note="What to eat"), "count": Parameter(_small, "integer", "How many")},
        ("Order {count} {dish}[|, please].", "I [want|would like] to order {count} {dish}.", "Get me {count} {dish}.", "[Bring|Deliver] {count} {dish}.", "We are hungry: {count} {dish}, please."),
        {"minutes": lambda draw: draw.between(10, 90)},
        "{count} {dish} will arrive in {minutes} minutes.",
    ),
    Spec(
        "find_restaurant", "Find a restaurant in a city", {"city": _CITY, "food": Parameter(lambda draw: draw.choice(words.FOODS), note="Kind of food")},
        ("Find a [restaurant|place] with {food} in {city}.", "Where can I eat {food} in {city}?", "I want {food} in {city}. Where do I go?", "Is there a {food} restaurant in {city}?", "Look for {food} in {city}."),
        {"restaurant": Draw.title},
        "Try {restaurant} in {city}.",
    ),
    Spec(
        "translate_text", "Translate a text into a language", {"text": Parameter(lambda draw: draw.choice(_TEXTS), note="Text to translate"), "language": _one_of("French", "German", "Spanish", "Italian")},
        ("Translate '{text}' [into|to] {language}.", "[Say|Put] '{text}' in {language}.", "What is '{text}' in {language}?", "How do you say '{text}' in {language}?", "Into {language}, please: '{text}'"),
        {"translation": lambda draw: draw.invented() + " " + draw.invented()},
        "In {language} it is: {translation}",
    ),
    Spec(
        "get_user", "Look up a user by id", {"user_id": Parameter(lambda draw: draw.number(10, 9999), "integer", "Number of the user")},
        ("[Who is|Get|Find|Show] user {user_id}[| for me].", "Look up [the user with|] id {user_id}.", "[Which user|Who] has the id {user_id}?", "I need the [data|record|name] of user {user_id}."),
        {"name": Draw.full_name},
        "User {user_id} is {name}.",
    ),
    Spec(
        "delete_file", "Delete a file", {"path": Parameter(lambda draw: f"{draw.invented()}.{draw.choice(('txt', 'pdf', 'png', 'csv', 'md'))}", note="Path of the file")},
        ("[Delete|Remove|Erase] [the file |]{path}[|, please].", "Get rid of {path}.", "I do not need {path} any more. Delete it.", "Can you delete {path}?"),
        {"status": lambda draw: draw.choice(("deleted", "locked", "missing"))},
        "The file {path} is {status}.",
    ),
    Spec(
        "read_file", "Read a file", {"path": Parameter(lambda draw: f"{draw.invented()}.{draw.choice(('txt', 'pdf', 'png', 'csv', 'md'))}", note="Path of the file")},
        ("[Read|Open|Show me] [the file |]{path}[|, please].", "What is in [the file |]{path}?", "What does {path} say?", "Can you read {path}?", "Print {path}."),
        {"content": lambda draw: draw.choice(_TEXTS)},
        "{path} says: {content}",
    ),
    Spec(
        "count_words", "Count the words of a text", {"text": Parameter(lambda draw: draw.choice(_TEXTS), note="The text")},
        ("[Count|Number] the words in '{text}'.", "How many words are in '{text}'?", "How long is '{text}' in words?", "Words in '{text}'?"),
        {"count": _small},
        "It has {count} words.",
    ),
    Spec(
        "multiply", "Multiply two numbers", {"a": Parameter(_amount, "integer"), "b": Parameter(_amount, "integer")},
        ("[Multiply|Take] {a} [by|times] {b}.", "What is {a} [times|*|x|multiplied by] {b}?", "How much is {a} times {b}?", "{a} times {b}?", "Compute {a} * {b}."),
        {"result": lambda draw: draw.number(100, 99999)},
        "{a} times {b} is {result}.",
    ),
    Spec(
        "roll_dice", "Roll a die with a number of sides", {"sides": Parameter(lambda draw: draw.between(2, 100), "integer", "Number of sides")},
        ("[Roll|Throw] a [die|dice] with {sides} sides.", "[Roll|Throw] a {sides}-sided [die|dice].", "Give me a roll of a {sides}-sided die.", "A die with {sides} sides, please."),
        {"value": _small},
        "The die shows {value}.",
    ),
)  # fmt: skip
_TEXTS = (
    "I am late", "see you at nine", "buy milk and bread", "call me back", "the meeting is over", "good luck", "where are you",
    "happy birthday", "I am on my way", "the door is open", "water the plants", "dinner is ready", "thank you for the book",
    "bring your coat", "the train is full", "I love the sea", "feed the cat", "pay the rent", "the river is cold", "come home soon",
    "the old clock is broken", "we leave tomorrow", "the shop is closed", "a bird in the garden", "bread and honey", "no rain today",
)  # fmt: skip

_VERBS = (
    "open close start stop check update restart archive export import approve cancel lock unlock rename share print scan "
    "copy move track test publish renew reset enable disable inspect schedule clean repair rent reserve review"
).split()
_OBJECTS = (
    "account order invoice ticket server folder report project contract parcel printer device camera gate engine backup "
    "playlist album room table booking licence sensor pump robot drone channel branch database job queue template badge"
).split()
_PARAMETER_NAMES = ("name", "id", "title", "label", "target", "code", "key", "item")


def put_together(draw: Draw, verb: str, noun: str) -> Spec:
    """A tool for any verb and noun, with one argument and perhaps a count."""
    joined = draw.choice((f"{verb}_{noun}", f"{verb}_{noun}", f"{verb}{noun.capitalize()}", f"{noun}_{verb}"))
    parameter = f"{noun}_{draw.choice(('id', 'name'))}" if draw.chance(0.3) else draw.choice(_PARAMETER_NAMES)
    if draw.chance(0.3):
        value = Parameter(lambda d: d.number(2, 9999), "integer")
    else:
        value = Parameter(lambda d: d.invented() if d.chance(0.4) else d.invented().capitalize())
    slot = "{" + parameter + "}"
    asks = (
        f"{verb.capitalize()} [the |]{noun} {slot}[|, please].",
        f"[Can|Could] you {verb} [the |]{noun} {slot}?",
        f"I [want|need] to {verb} [the |]{noun} {slot}.",
        f"[Please|Now] {verb} the {noun} called {slot}.",
        f"The {noun} {slot}: {verb} it.",
    )
    result: Mapping[str, MakeValue]
    if draw.chance(0.5):
        result, reply = (
            {"status": lambda d: d.choice(("ready", "open", "closed", "full", "empty", "new", "old"))},
            f"The {noun} {slot} is {{status}}.",
        )
    else:
        result, reply = (
            {"result": lambda d: d.number(2, 9999) if d.chance(0.5) else d.invented()},
            "The result is {result}.",
        )
    article = "an" if noun[0] in "aeiou" else "a"
    return Spec(joined, f"{verb.capitalize()} {article} {noun}", {parameter: value}, asks, result, reply)


_VERB_ALIASES = ("get", "do", "run", "new")
_PARAMETER_ALIASES: Mapping[str, tuple[str, ...]] = {
    "city": ("location", "place", "town", "city_name"),
    "name": ("person", "contact", "who", "recipient"),
    "title": ("name", "label", "item"),
    "text": ("message", "content", "body", "input"),
    "query": ("q", "search", "term", "text"),
    "minutes": ("duration", "length", "time"),
    "time": ("at", "when", "clock"),
    "path": ("file", "filename", "file_name"),
    "amount": ("value", "number", "sum"),
    "company": ("symbol", "firm", "name"),
    "room": ("place", "area", "location"),
    "user_id": ("id", "user", "number"),
    "origin": ("source", "start", "departure"),
    "destination": ("target", "end", "arrival"),
    "date": ("day", "when", "on"),
    "sides": ("count", "faces", "n"),
    "degrees": ("temperature", "value", "target"),
}


def renamed(draw: Draw, spec: Spec, *, verb: str | None = None) -> Spec:
    """The same tool under other names, so that names have to be read off the offer and cannot be known by heart.

    verb: what its name begins with; None for one of a few.
    """
    first, *rest = spec.name.split("_")
    aliases = (first, *_VERB_ALIASES) if rest else _VERB_ALIASES
    words_of_name = [verb or draw.choice(aliases), *(rest or (first,))]
    if draw.chance(0.1):
        words_of_name.insert(1, draw.choice(("current", "my", "the")))
    if draw.chance(0.1):
        words_of_name.reverse()
    camel = words_of_name[0] + "".join(word.capitalize() for word in words_of_name[1:])
    name = camel if draw.chance(0.3) else "_".join(words_of_name)
    new = {old: draw.choice((old, *_PARAMETER_ALIASES.get(old, ()))) for old in spec.parameters}
    if len(set(new.values()) | set(spec.result)) < len(new) + len(spec.result):
        new = {old: old for old in spec.parameters}

    def slots(text: str) -> str:
        return "".join(
            "{" + new.get(part[1:-1], part[1:-1]) + "}" if part[:1] == "{" else part
            for part in _SLOT.split(text)
        )

    return Spec(
        name,
        spec.description,
        {new[old]: part for old, part in spec.parameters.items()},
        tuple(slots(ask) for ask in spec.asks),
        spec.result,
        slots(spec.reply),
        told_by_name=False,
    )


def renamed_specs(draw: Draw, count: int) -> list[Spec]:
    """Different hand-written tools, each under a name that begins with any verb, or with another word."""
    return [
        renamed(draw, spec, verb=_any_verb(draw) if draw.chance(0.5) else None)
        for spec in draw.sample(HAND_WRITTEN, count)
    ]


def _any_verb(draw: Draw) -> str:
    return draw.invented() if draw.chance(0.4) else draw.choice(_VERBS)


def some_specs(draw: Draw, count: int) -> list[Spec]:
    """Different tools, the first of which is the one to ask for; made-up ones may share its verb or its noun."""
    if draw.chance(0.55):
        specs = draw.sample(HAND_WRITTEN, count)
        return [renamed(draw, spec) for spec in specs] if draw.chance(0.35) else specs
    verbs: list[str] = draw.sample(_VERBS, count)
    nouns: list[str] = draw.sample(_OBJECTS, count)
    if count > 1 and draw.chance(0.4):
        verbs[1:], nouns[1:] = (
            ([verbs[0]] * (count - 1), nouns[1:])
            if draw.chance(0.5)
            else (verbs[1:], [nouns[0]] * (count - 1))
        )
    specs = [put_together(draw, verb, noun) for verb, noun in zip(verbs, nouns, strict=True)]
    if count > 1 and draw.chance(0.3):
        specs[-1] = draw.choice(HAND_WRITTEN)
    return specs
