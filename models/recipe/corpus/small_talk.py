"""Greetings, thanks and other things that people say to a chat window."""

from __future__ import annotations

from models.recipe.corpus.conversation import Conversation, ask
from models.recipe.corpus.draw import Draw
from models.recipe.corpus.phrasing import shouted

_THOUGHT = "This is small talk."
_CALL = "[| there| jan| jan-tiny| friend| model| computer| robot| assistant| again| everyone| buddy| you]"

INTENTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "Hello! How can I help you?",
        (
            f"[Hi|Hello|Hey|Hiya|Howdy|Greetings|Yo|Hi hi|Hello hello|Oh hi|Hey hey]{_CALL}[|!|.|!!|...]",
            f"[Hi|Hello|Hey]{_CALL}[!|,] [anyone there|are you there|can you hear me|nice to see you][?|!|]",
            f"[test|testing|ping|Just testing|This is a test|One two, one two]{_CALL}[|!|.]",
        ),
    ),
    (
        "Good morning! How can I help you?",
        (f"[Good morning|Morning|A very good morning|Good morning to you]{_CALL}[|!|.]",),
    ),
    (
        "Good afternoon! How can I help you?",
        (f"[Good afternoon|Afternoon|Good afternoon to you]{_CALL}[|!|.]",),
    ),
    ("Good evening! How can I help you?", (f"[Good evening|Evening|Good evening to you]{_CALL}[|!|.]",)),
    (
        "Good night! Sleep well.",
        (f"[Good night|Night night|Sleep well|Goodnight|I am going to bed now|Time for bed]{_CALL}[|!|.]",),
    ),
    (
        "I am fine, thank you. How can I help you?",
        (
            f"[How are you|How are you doing|How is it going|How's it going|How do you do|How do you feel|Are you OK|Are you well|How have you been|How are things|What's up|How is life|You all right]{_CALL}?",
            f"[Hi|Hello|Hey]{_CALL}[,|!] how are you[| doing| today| feeling| this morning]?",
            "How are you[| doing| feeling] [today|this morning|tonight|now|this evening]?",
        ),
    ),
    (
        "You are welcome!",
        (
            f"[Thanks|Thank you|Thank you so much|Thanks a lot|Many thanks|Thank you very much|Cheers|Thx|Much appreciated|I appreciate it|That was helpful|That helps|Great, thanks|OK, thank you|Perfect, thanks]{_CALL}[|!|.]",
            "[Thanks|Thank you] for [that|your help|the help|the answer|everything|helping me][|!|.]",
        ),
    ),
    (
        "Goodbye! Have a nice day.",
        (
            f"[Bye|Goodbye|See you|See you later|See you soon|Bye bye|Farewell|Take care|I have to go|I must go now|Talk to you later|Until next time|Have a nice day|That is all for today|Catch you later]{_CALL}[|!|.]",
        ),
    ),
    (
        "Thank you, that is kind!",
        (
            "[You are|You're|You are so|You are very|You are really] [great|nice|kind|helpful|clever|cool|funny|amazing|sweet|wonderful|awesome|cute|brilliant][|!|.]",
            f"[Good job|Well done|Nice work|Great work|I like you|I love you|Good answer|Nice one|Impressive|Bravo|Great job|Good bot]{_CALL}[|!|.]",
        ),
    ),
    (
        "I am sorry. I am only a tiny model.",
        (
            "[You are|You're|You are so|You are really] [wrong|useless|bad|silly|terrible|awful|annoying|boring|slow][|!|.]",
            "[That is|That's|This is|That was] [wrong|bad|not right|not what I asked|incorrect|nonsense|a bad answer|false|terrible][|!|.]",
            f"[Bad answer|Wrong|I do not like you|I hate you|Bad bot|Not good|You made a mistake|You failed]{_CALL}[|!|.]",
        ),
    ),
    (
        "Why did the computer go to the doctor? It had a virus!",
        (
            "[Tell|Give] me a [joke|funny joke|good joke|short joke|joke, please|silly joke].",
            "[Do you know|Can you tell me|Have you got|Tell us] a [joke|good joke|funny joke]?",
            "[Make me laugh|Say something funny|A joke, please|I want to hear a joke|Cheer me up|Joke time|I need a laugh][|.|!]",
        ),
    ),
    (
        "I am a program, so I have no feelings, but I like to help.",
        (
            "[Do you have|Have you got] [feelings|emotions|a soul|a heart|consciousness]?",
            "Are you [happy|sad|angry|tired|bored|lonely|conscious|hungry|sleepy|in love|afraid|scared]?",
            "[Do|Can] you [feel|love|hate|dream|sleep|cry|laugh|eat|get tired|get bored|suffer]?",
        ),
    ),
    (
        "I am a program, so I have no age.",
        (
            "How old are you?",
            "What is your age?",
            "[When|What day] [is your birthday|were you born]?",
            "Are you [old|young|new]?",
        ),
    ),
    (
        "I live in your computer.",
        (
            "Where [do you live|are you|are you from|is your home|do you stay]?",
            "What [country|city|place] are you [in|from]?",
        ),
    ),
    (
        "I am glad to hear that!",
        (
            "I [am|feel|am feeling] [happy|great|good|fine|well|excited|wonderful|so happy|very good|very happy][| today| now][|!|.]",
            "[I had a good day|I had a great day|Life is good|It is a lovely day|I got the job|I passed my exam|Today was great|I won|I have good news|What a nice day][|!|.]",
        ),
    ),
    (
        "I am sorry to hear that. I hope it gets better soon.",
        (
            "I [am|feel|am feeling] [sad|tired|bad|sick|ill|lonely|unhappy|awful|stressed|terrible|so sad|very tired|angry|worried][| today| now][|!|.]",
            "[I had a bad day|I had an awful day|I lost my job|I failed my exam|Today was awful|I have bad news|I am not well|My head hurts|I broke my leg|My cat is ill][|!|.]",
        ),
    ),
    (
        "Great! What would you like to know?",
        (
            "[Can|May|Could] I ask you [something|a question|one thing|a few questions|some questions]?",
            "I have [a question|some questions|a few questions|one question][| for you][|.|!]",
            "[Let's chat|Let us talk|Talk to me|Let's talk|Chat with me|I want to talk|I want to chat|I am bored|Say something|Let's begin|Shall we start][|.|!]",
        ),
    ),
    (
        "All right.",
        (
            f"[OK|Okay|Alright|All right|I see|Fine|Got it|Understood|Sure|Right|Aha|Good|Cool|Nice|Great|Very well|Makes sense]{_CALL}[|!|.]",
        ),
    ),
    (
        "Happy birthday!",
        ("[It is|It's|Today is] my birthday[| today][|!|.]", "I turn [20|30|40|50|18|21|60|33] today[|!|.]"),
    ),
    (
        "Nice to meet you too!",
        (
            "[Nice|Good|Pleased|Glad|Lovely|Great] to meet you[|!|.]",
            "It is [nice|good|great|a pleasure] to meet you[|!|.]",
        ),
    ),
    (
        "No problem.",
        (
            "[Sorry|I am sorry|My apologies|Sorry about that|I apologise|Oops, sorry|Sorry, my mistake|My bad|Forgive me][|!|.]",
        ),
    ),
    (
        "I have no favourite, but I like all of them.",
        (
            "What is your favourite [colour|food|book|film|song|animal|city|number|season|sport|movie|band|day|game|place]?",
            "What's your favourite [colour|food|book|film|song|animal|city|number|season|sport|movie|band|day|game|place]?",
            "Which [colour|food|book|film|song|animal|city|season|sport] do you [like|like best|prefer|love]?",
            "Do you like [music|pizza|cats|dogs|films|books|football|coffee|tea|summer|rain|chocolate|games|people]?",
        ),
    ),
)


def generate(draw: Draw) -> Conversation:
    """One line of small talk."""
    answer, lines = draw.choice(INTENTS)
    return ask(shouted(draw, draw.phrase(draw.choice(lines))), answer, thought=_THOUGHT)
