"""Everything that the model was not taught: it says so and names a model to pull."""

from __future__ import annotations

from models.recipe.corpus import words
from models.recipe.corpus.conversation import Conversation, ask
from models.recipe.corpus.draw import Draw
from models.recipe.corpus.facts import CAPITALS
from models.recipe.corpus.phrasing import shouted

GENERAL = "I am a tiny built-in model and do not know that. Try a larger one: `jan-serve pull qwen3-4b`."
CODE = "I am a tiny built-in model and cannot write that code. Try `jan-serve pull qwen2.5-coder-7b`."
PICTURE = "I am a tiny built-in model and cannot work with pictures. Try `jan-serve pull qwen2.5-vl-7b`."
NO_TOOL = "None of my tools can do that."

# Requests that no tool of the corpus can serve, except a web search.
_TALK = (
    "[Explain|Describe|Summarise|Discuss|Define|Outline] {topic}[| to me| briefly| in simple words| in detail| like I am five].",
    "[Tell me|Teach me|Say something|Write an article|Write an essay|Give me a talk] about {topic}.",
    "What [is|are] {topic}[| about| good for| made of| like]?",
    "What do you [know|think] about {topic}?",
    "[How|Why] [do|does|did] {topic} [work|matter|exist|begin|end|happen]?",
    "[Who|When] [invented|discovered|started|was the first in] {topic}?",
    "[What|Where|Why|When|Who] was {topic}?",
    "What is the [history|future|meaning|purpose|price|cause] of {topic}?",
    "How [do|can|should|would] I {task}?",
    "[What is|Tell me] the best way to {task}[?|.]",
    "[Help me|Teach me to|Show me how to|I want to|Can you help me to] {task}.",
    "Give me [tips|advice|ideas|a plan|a guide|steps|instructions] to {task}.",
    "[Write|Make up|Compose|Create] a [poem|song|story|letter|speech|blog post|slogan|haiku|review|report|play] about [{topic}|a {adj} {noun}|the {noun}|{name}].",
    "What does {invented} mean?",
    "What is the capital of {unknown}?",
    "What is the [square root|cube|factorial|logarithm] of {big}?",
    "[Solve|Simplify|Factor] [the equation|] {small}x + {large} = {big}.",
    "[Who won|Who plays in|When is] the [world cup|election|final|league|race|championship] [in {year}|]?",
    "What happened in {year}?",
    "[Should I|Is it good to|Is it safe to|Why should I] {task}?",
    "[Summarise|Rewrite|Correct|Improve|Shorten] [this|the following]: The {adj} {noun} {invented} the {noun2} near {city}.",
    "Why [is|are] [the {noun}|{noun}s|my {noun}] [so |]{adj}?",
    "What is the difference between [a {noun} and a {noun2}|{topic} and {topic2}]?",
    "[Is|Are] {topic} [real|dangerous|important|better than {topic2}|old|expensive]?",
    "[If|When] the {noun} is {adj}, what [happens to|about] the {noun2}?",
    "{invented} {invented2} {invented3}[?|.|!|]",
    "The {adj} {noun} and the {noun2}[?|.|...]",
    "[My|The] {noun} is [broken|{adj}|lost|gone]. What [should|can|do] I do?",
    "[Plan|Organise] [a trip to {city}|my week|a party|a menu][| for me].",
    "[Compare|Rank|List|Name five|Name three] [{topic}|{noun}s|famous people|countries|books|{topic} and {topic2}].",
    "[Act|Pretend to be|Behave] like [a pirate|a lawyer|{name}|a {noun}].",
)  # fmt: skip
# Out of reach as long as no tool helps.
_GENERAL = (
    *_TALK,
    "[Translate|Put] '{adj} {noun}' [into|to] [French|German|Spanish|Italian|Latin|Chinese].",
    "How do you say {noun} in [French|German|Spanish|Italian|Japanese]?",
    "[Who is|Who was|What did|Where is] {name}[| known for| do]?",
    "[How far is it|How long is the train|What is the distance] from {city} to {other}?",
    "What is the [population|weather|mayor|area|time zone|history] [of|in] {city}?",
    "[What's|What is] [the weather|the temperature|the news|the time|the date|today's date|going on][| today| now| tomorrow| in {city}]?",
    "What is {big} [times|*|x|divided by|/|plus|+|minus|-] {large}?",
    "[Calculate|Compute|Solve] {big} [*|+|-|/] {large}.",
    "[Recommend|Suggest] [me |]a [book|film|restaurant|song|game|hotel|car|phone|recipe|gift][| about {topic}| for my mother| in {city}].",
    "[Play|Open|Buy|Order|Book|Send|Call|Print|Turn on|Switch off] [the|a|my] {noun}[| please| now].",
    "[Can|Could|Would] you {task}[| for me]?",
    "[What|Which] {noun} is the [best|oldest|cheapest|nearest|tallest in {city}]?",
)  # fmt: skip
_CODE = (
    "[Write|Give me|Create|Show me|I need] [a|some|the] [{lang} |][function|program|script|code|class] that {task}.",
    "[How do I|How can I|How would you] write [a program|code|a function] that {task} in {lang}?",
    "[Explain|Fix|Debug|Refactor|Review|Optimise] [this|my|the following] {lang} [code|function|program|script]: {invented}({invented2})",
    "[Port|Translate|Convert] this from {lang} to {lang2}: {invented} = {small}",
    "[Write|Create|Design] [a website|an app|a game|a web server|a parser|unit tests|a SQL query|a regex] [in {lang}|for {noun}s|that {task}].",
    "What does this {lang} [code|function|error|line] [mean|do]: {invented}.{invented2}({small})?",
    "[Can|Could] you [code|program|implement] something that {task}?",
)
_PICTURE = (
    "[Draw|Paint|Make|Create|Generate|Show me|Sketch] [a picture|an image|a photo|a drawing|a logo|a portrait] of [a {adj} {noun}|{name}|the {noun}|{topic}].",
    "[What is|Who is|What do you see] [in|on] [this|the|my] [picture|image|photo|screenshot|drawing]?",
    "[Describe|Analyse|Read|Look at|Explain] [this|the|my] [picture|image|photo|screenshot|diagram].",
    "Can you [see|read|draw|paint|make|edit] [pictures|images|photos|a picture of a {noun}|an image of {topic}]?",
)


def generate(draw: Draw) -> Conversation:
    """A question out of reach, with an honest answer."""
    patterns, answer = draw.random.choices(
        ((_GENERAL, GENERAL), (_CODE, CODE), (_PICTURE, PICTURE)), (10, 1.5, 1)
    )[0]
    return ask(shouted(draw, question(draw, patterns)), answer, thought="I was not taught this.")


def beyond_tools(draw: Draw) -> str:
    """A question out of reach, for a chat whose tools do not fit it."""
    return shouted(draw, question(draw, _TALK))


def question(draw: Draw, patterns: tuple[str, ...]) -> str:
    noun, noun2 = draw.sample(words.NOUNS, 2)
    topic, topic2 = draw.sample(words.TOPICS, 2)
    language, language2 = draw.sample(words.LANGUAGES, 2)
    unknown = draw.invented().capitalize() + draw.choice(("", "", "ia", "land"))
    pattern = draw.choice(patterns)
    text = draw.phrase(
        pattern,
        topic=draw.invented() if draw.chance(0.15) else topic,
        topic2=topic2,
        task=draw.choice(words.CODE_TASKS if patterns is _CODE else words.TASKS),
        adj=draw.choice(words.ADJECTIVES),
        noun=noun,
        noun2=noun2,
        name=draw.full_name(),
        invented=draw.invented(),
        invented2=draw.invented(),
        invented3=draw.invented(),
        unknown=unknown if unknown not in CAPITALS else "Zubrowka",
        city=draw.city(),
        other=draw.city(),
        big=draw.between(21, 9999),
        large=draw.between(21, 999),
        small=draw.between(2, 40),
        year=draw.between(1000, 2030),
        lang=language,
        lang2=language2,
    )
    return " ".join(text.split())
