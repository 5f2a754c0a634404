"""A fixed list of some two hundred facts, each asked in many ways."""

from __future__ import annotations

from collections.abc import Mapping

from models.recipe.corpus.conversation import Conversation, ask
from models.recipe.corpus.draw import Draw
from models.recipe.corpus.phrasing import shouted
from models.recipe.corpus.words import DAYS, MONTHS


def _pairs(text: str) -> dict[str, str]:
    """``a:b|c:d`` as a mapping."""
    return {key: value for key, _, value in (pair.partition(":") for pair in text.split("|"))}


CAPITALS: Mapping[str, str] = _pairs(
    "France:Paris|Germany:Berlin|Italy:Rome|Spain:Madrid|Portugal:Lisbon|Ireland:Dublin|Norway:Oslo|Sweden:Stockholm|"
    "Finland:Helsinki|Denmark:Copenhagen|Iceland:Reykjavik|Poland:Warsaw|Austria:Vienna|Hungary:Budapest|"
    "Greece:Athens|Turkey:Ankara|Russia:Moscow|Ukraine:Kyiv|Romania:Bucharest|Bulgaria:Sofia|Serbia:Belgrade|"
    "Croatia:Zagreb|Belgium:Brussels|Switzerland:Bern|Estonia:Tallinn|Latvia:Riga|Lithuania:Vilnius|Slovakia:Bratislava|"
    "Slovenia:Ljubljana|Albania:Tirana|Malta:Valletta|Cyprus:Nicosia|Egypt:Cairo|Kenya:Nairobi|Ghana:Accra|Nigeria:Abuja|"
    "Ethiopia:Addis Ababa|Morocco:Rabat|Tunisia:Tunis|Senegal:Dakar|Uganda:Kampala|Zambia:Lusaka|Zimbabwe:Harare|"
    "China:Beijing|Japan:Tokyo|India:New Delhi|Pakistan:Islamabad|Nepal:Kathmandu|Thailand:Bangkok|Vietnam:Hanoi|"
    "Indonesia:Jakarta|Iran:Tehran|Iraq:Baghdad|Israel:Jerusalem|Jordan:Amman|Lebanon:Beirut|Qatar:Doha|Mongolia:Ulaanbaatar|"
    "South Korea:Seoul|Australia:Canberra|New Zealand:Wellington|Canada:Ottawa|Mexico:Mexico City|Cuba:Havana|"
    "Jamaica:Kingston|Brazil:Brasilia|Argentina:Buenos Aires|Chile:Santiago|Peru:Lima|Colombia:Bogota|Ecuador:Quito|"
    "Uruguay:Montevideo|Venezuela:Caracas|the United States:Washington|the United Kingdom:London|the Netherlands:Amsterdam"
)
COLOURS: Mapping[str, str] = _pairs(
    "the sky:blue|grass:green|snow:white|coal:black|blood:red|a lemon:yellow|a banana:yellow|a carrot:orange|milk:white|"
    "a ripe tomato:red|a strawberry:red|the sun:yellow|chocolate:brown|an elephant:grey|a flamingo:pink|a cucumber:green|"
    "a polar bear:white|a raven:black|the sea:blue|a pumpkin:orange|a lime:green|salt:white"
)
OPPOSITES: Mapping[str, str] = _pairs(
    "hot:cold|big:small|up:down|day:night|left:right|fast:slow|old:young|happy:sad|open:closed|full:empty|light:dark|"
    "wet:dry|high:low|hard:soft|rich:poor|long:short|early:late|good:bad|strong:weak|loud:quiet|true:false|"
    "first:last|inside:outside|clean:dirty|near:far|thick:thin|sweet:sour|win:lose|buy:sell|love:hate"
)
SOUNDS: Mapping[str, str] = _pairs(
    "cow:moo|dog:woof|cat:meow|duck:quack|sheep:baa|pig:oink|lion:roar|snake:hiss|bee:buzz|owl:hoot"
)
YOUNG: Mapping[str, str] = _pairs(
    "dog:puppy|cat:kitten|cow:calf|horse:foal|sheep:lamb|duck:duckling|hen:chick|pig:piglet|goat:kid|bear:cub"
)
COUNTS: Mapping[str, str] = _pairs(
    "days are in a week:seven|months are in a year:twelve|hours are in a day:24|minutes are in an hour:60|"
    "seconds are in a minute:60|days are in a year:365|legs does a spider have:eight|legs does a dog have:four|"
    "legs does an insect have:six|sides does a triangle have:three|sides does a square have:four|wheels does a bicycle have:two|"
    "fingers are on one hand:five|continents are there:seven|letters are in the alphabet:26|players are in a football team:eleven|"
    "cents are in a euro:100|grams are in a kilogram:1000|metres are in a kilometre:1000|seasons are in a year:four"
)
SINGLE: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "The largest planet is Jupiter.",
        (
            "[What|Which] is the [largest|biggest] planet?",
            "Which planet is the [largest|biggest]?",
            "[Name|Tell me] the [largest|biggest] planet.",
        ),
    ),
    (
        "The largest ocean is the Pacific.",
        (
            "[What|Which] is the [largest|biggest] ocean?",
            "Which ocean is the [largest|biggest]?",
            "[Name|Tell me] the [largest|biggest] ocean.",
        ),
    ),
    (
        "The highest mountain is Mount Everest.",
        (
            "[What|Which] is the [highest|tallest] mountain?",
            "Which mountain is the [highest|tallest]?",
            "[Name|Tell me] the [highest|tallest] mountain.",
        ),
    ),
    (
        "Water is made of hydrogen and oxygen.",
        (
            "What is water made of?",
            "[Which|What] elements are in water?",
            "[What|Which] atoms make water?",
            "What does water consist of?",
        ),
    ),
    (
        "Water boils at 100 degrees Celsius.",
        (
            "At [what|which] temperature does water boil?",
            "When does water boil?",
            "How hot is boiling water?",
            "What is the boiling point of water?",
        ),
    ),
    (
        "Water freezes at 0 degrees Celsius.",
        (
            "At [what|which] temperature does water freeze?",
            "When does water freeze?",
            "How cold is freezing water?",
            "What is the freezing point of water?",
        ),
    ),
    (
        "The Earth goes around the Sun.",
        (
            "What does the Earth [go around|circle|orbit]?",
            "What is at the centre of the solar system?",
            "Around what does the Earth [go|turn]?",
        ),
    ),
    (
        "Bees make honey.",
        ("[Who|What|Which animal] makes honey?", "Where does honey come from?", "Which insect makes honey?"),
    ),
    (
        "The fastest land animal is the cheetah.",
        (
            "[What|Which] is the fastest [land animal|animal on land]?",
            "Which land animal is the fastest?",
            "[Name|Tell me] the fastest land animal.",
        ),
    ),
    (
        "The largest animal is the blue whale.",
        (
            "[What|Which] is the [largest|biggest] animal?",
            "Which animal is the [largest|biggest]?",
            "[Name|Tell me] the [largest|biggest] animal.",
        ),
    ),
)


def generate(draw: Draw) -> Conversation:
    """One fact, asked in one of its phrasings."""
    family = draw.random.choices(_FAMILIES, weights=[weight for _, weight in _FAMILY_WEIGHTS])[0]
    question, answer = family(draw)
    return ask(shouted(draw, question), answer, thought="This is a fact that I know.")


def _capital(draw: Draw) -> tuple[str, str]:
    country = draw.choice(tuple(CAPITALS))
    city = CAPITALS[country]
    if draw.chance(0.25):
        patterns = (
            "{city} is the capital of [which|what] country?",
            "Of [which|what] country is {city} the capital?",
            "[Which|What] country has {city} as its capital?",
            "[Which|What] country's capital is {city}?",
        )
        shown = country[0].upper() + country[1:]
        return draw.phrase(
            draw.choice(patterns), city=city
        ), f"{city} is the capital of {shown.replace('The ', 'the ')}."
    patterns = (
        "[What|Which city] is the capital[| city] of {country}?",
        "What's the capital of {country}?",
        "[Tell|Give] me the capital of {country}.",
        "[Name|Say] the capital of {country}.",
        "The capital of {country}?",
        "Do you know the capital of {country}?",
        "I need to know the capital of {country}.",
        "What is {country}'s capital?",
        "Which city is {country}'s capital?",
        "Can you tell me the capital of {country}?",
    )
    return draw.phrase(draw.choice(patterns), country=country), f"The capital of {country} is {city}."


def _colour(draw: Draw) -> tuple[str, str]:
    thing = draw.choice(tuple(COLOURS))
    patterns = (
        "[What|Which] colour is {thing}?",
        "[What|Which] color is {thing}?",
        "What is the [colour|color] of {thing}?",
        "[Tell|Give] me the [colour|color] of {thing}.",
        "[What|Which] [colour|color] does {thing} have?",
        "Do you know the [colour|color] of {thing}?",
        "[Name|Say] the [colour|color] of {thing}.",
    )
    subject = thing[0].upper() + thing[1:]
    return draw.phrase(draw.choice(patterns), thing=thing), f"{subject} is {COLOURS[thing]}."


def _neighbour(draw: Draw) -> tuple[str, str]:
    names = draw.choice((DAYS, MONTHS))
    kind = "day" if names is DAYS else "month"
    index = draw.between(0, len(names) - 1)
    after = draw.chance(0.5)
    where = "after" if after else "before"
    patterns = (
        "[What|Which] {kind} [is|comes] {where} {name}?",
        "What [is|comes] {where} {name}?",
        "[Tell|Give] me the {kind} {where} {name}.",
        "[Name|Say] the {kind} {where} {name}.",
        "The {kind} {where} {name}?",
        "Do you know [what|which {kind}] comes {where} {name}?",
    )
    other = names[(index + (1 if after else -1)) % len(names)]
    verb = "comes"
    return draw.phrase(
        draw.choice(patterns), kind=kind, where=where, name=names[index]
    ), f"{other} {verb} {where} {names[index]}."


def _month_number(draw: Draw) -> tuple[str, str]:
    index = draw.between(0, 11)
    ordinals = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split()
    patterns = (
        "[What|Which] is the {ordinal} month[| of the year]?",
        "[Tell|Give] me the {ordinal} month[| of the year].",
        "[What|Which] month is the {ordinal}?",
        "[Name|Say] the {ordinal} month[| of the year].",
        "Do you know the {ordinal} month[| of the year]?",
    )
    ordinal = ordinals[index]
    return draw.phrase(draw.choice(patterns), ordinal=ordinal), f"The {ordinal} month is {MONTHS[index]}."


def _opposite(draw: Draw) -> tuple[str, str]:
    pairs = [*OPPOSITES.items(), *((right, left) for left, right in OPPOSITES.items())]
    word, other = draw.choice(pairs)
    patterns = (
        "What is the opposite of {word}?",
        "What's the opposite of {word}?",
        "[Tell|Give] me the opposite of {word}.",
        "[Name|Say] the opposite of {word}.",
        "Which word is the opposite of {word}?",
        "Opposite of {word}?",
        "Do you know the opposite of {word}?",
        "Which word means the opposite of {word}?",
    )
    return draw.phrase(draw.choice(patterns), word=word), f"The opposite of {word} is {other}."


def _animal(draw: Draw) -> tuple[str, str]:
    if draw.chance(0.5):
        animal = draw.choice(tuple(SOUNDS))
        patterns = (
            "[What|Which] sound does [a|the] {animal} make?",
            "What does [a|the] {animal} say?",
            "What noise does [a|the] {animal} make?",
            "[Tell|Give] me the sound of [a|the] {animal}.",
            "How does [a|the] {animal} sound?",
        )
        return draw.phrase(draw.choice(patterns), animal=animal), f"The {animal} says {SOUNDS[animal]}."
    animal = draw.choice(tuple(YOUNG))
    patterns = (
        "What is a [young|baby] {animal} called?",
        "What do you call a [young|baby] {animal}?",
        "What is the [name|word] [of|for] a [young|baby] {animal}?",
        "[Tell|Give] me the [word|name] for a [young|baby] {animal}.",
        "[What's|How do you call] a [young|baby] {animal}?",
    )
    return draw.phrase(draw.choice(patterns), animal=animal), f"A young {animal} is called a {YOUNG[animal]}."


def _count(draw: Draw) -> tuple[str, str]:
    what = draw.choice(tuple(COUNTS))
    patterns = (
        "How many {what}?",
        "Tell me how many {what}.",
        "Do you know how many {what}?",
        "Say how many {what}.",
        "Can you tell me how many {what}?",
        "I forgot how many {what}.",
    )
    noun, _, rest = what.partition(" ")
    answer = COUNTS[what][0].upper() + COUNTS[what][1:]
    if rest.startswith("are "):
        sentence = f"There are {COUNTS[what]} {noun} {rest[4:]}."
    else:
        owner = rest.removeprefix("does ").removesuffix(" have")
        sentence = f"{owner[0].upper()}{owner[1:]} has {answer.lower()} {noun}."
    if noun == "players":
        sentence = "There are eleven players in a football team."
    return draw.phrase(draw.choice(patterns), what=what), sentence.replace(
        " continents there.", " continents."
    )


def _single(draw: Draw) -> tuple[str, str]:
    answer, questions = draw.choice(SINGLE)
    prefix = draw.choice(
        ("", "", "", "I wonder: ", "Tell me: ", "Do you know this: ", "Question: ", "My child asks: ")
    )
    question = draw.phrase(draw.choice(questions))
    return prefix + question, answer


_FAMILY_WEIGHTS = (
    (_capital, 8),
    (_colour, 2),
    (_neighbour, 2),
    (_month_number, 1),
    (_opposite, 3),
    (_animal, 2),
    (_count, 2),
    (_single, 1),
)
_FAMILIES = [family for family, _ in _FAMILY_WEIGHTS]
