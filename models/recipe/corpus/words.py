"""Word lists of the corpus. Ours: common words and names, written for this purpose."""

from __future__ import annotations

import re

GIVEN_NAMES = (
    "Anna Ben Carla David Emma Felix Grace Hugo Ines Jack Kate Leo Maria Nina Oscar Paul Rosa Sam Tina Victor Alice "
    "Bruno Chloe Daniel Elena Frank Gina Henry Irene James Karen Liam Mona Noah Olga Peter Ruth Simon Thomas Ursula "
    "Vera Walter Yuki Zoe Ahmed Bilal Chen Diego Eva Fatima George Hana Ivan Julia Kofi Laila Marco Nadia Omar Priya "
    "Quinn Ravi Sofia Tariq Uma Wei Ximena Yusuf Zara Amir Bella Cyrus Dora Erik Fiona Gustav Helen Isaac Jonas "
    "Kenji Lucy Mateo Nora Otto Pablo Rachel Sven Tomas Viola Wanda Aaron Beth Colin Diana Edgar Freya Gordon Heidi "
    "Ian Jane Kevin Linda Martin Nancy Oliver Penny Robert Sarah Tim Violet William Adam Brian Cathy Doris Eric John "
    "Mary Michael Susan Mark Laura Steven Julie Kim Joe Tom Lena Max Mia Lukas Elsa Ada Alan Boris Clara Dmitri"
).split()
FAMILY_NAMES = (
    "Smith Jones Brown Miller Garcia Rossi Weber Novak Silva Costa Kim Lee Wong Tanaka Sato Singh Patel Khan Ali Haddad "
    "Cohen Levy Dubois Martin Moreau Schmidt Fischer Wagner Becker Larsen Hansen Berg Lund Virtanen Nieminen Kowalski "
    "Horvat Popescu Ivanov Petrov Sokolov Demir Yilmaz Okafor Mensah Diallo Abebe Kamau Nguyen Tran Santos Reyes Cruz "
    "Lopez Perez Torres Flores Rivera Gomez Diaz Murphy Kelly Walsh Byrne Campbell Stewart Fraser Evans Davies Hughes "
    "Clark Lewis Walker Hall Young King Wright Hill Green Baker Adams Carter Mitchell Turner Parker Collins Morris "
    "Cook Bell Ward Cooper Reed Bailey Gray Watson Brooks Price Wood Barnes Ross Long Foster Powell Lovelace Turing"
).split()
CITIES = (
    "Paris London Berlin Madrid Rome Vienna Oslo Lisbon Dublin Prague Warsaw Athens Helsinki Stockholm Budapest Zurich "
    "Geneva Munich Hamburg Cologne Lyon Marseille Nice Milan Turin Naples Venice Florence Barcelona Seville Porto "
    "Glasgow Leeds Bristol Oxford Boston Chicago Denver Seattle Austin Dallas Houston Miami Atlanta Portland Toronto "
    "Montreal Vancouver Calgary Lima Bogota Quito Santiago Havana Tokyo Osaka Kyoto Seoul Busan Beijing Shanghai Delhi "
    "Mumbai Chennai Karachi Dhaka Bangkok Hanoi Jakarta Manila Sydney Perth Brisbane Auckland Cairo Tunis Nairobi Lagos "
    "Accra Dakar Kampala Harare Durban Istanbul Ankara Izmir Beirut Amman Baku Tbilisi Kyiv Odessa Riga Vilnius Tallinn"
).split()
MAIL_HOSTS = "example mail post inbox office home work school company letters".split()
TOP_LEVEL_DOMAINS = "com org net io de fr uk es it eu".split()
ADJECTIVES = (
    "red blue green black white golden silver old new young little big quiet loud happy sad slow fast warm cold bright "
    "dark sweet bitter soft hard deep high long short early late lost hidden broken open empty full wild gentle"
).split()
NOUNS = (
    "river mountain garden window door table chair road bridge house tower lamp book letter song story dream night "
    "morning winter summer spring autumn rain snow wind cloud star moon sun sea ocean island forest tree leaf flower "
    "bird horse cat dog fish wolf bear fox stone fire light shadow mirror clock train boat ship wheel bell key box "
    "hat coat shoe ring cup bread apple honey salt tea coffee city street market school field farm hill valley"
).split()
COLOURS = "red blue green yellow black white purple orange pink brown grey".split()
FOODS = (
    "pizza pasta soup rice bread salad curry sushi tacos cake cheese noodles pancakes apples mangoes".split()
)
JOBS = (
    "teacher doctor nurse farmer baker driver pilot painter writer lawyer gardener engineer plumber singer waiter "
    "student carpenter chemist librarian cook"
).split()
ANIMALS = "cat dog rabbit horse parrot hamster turtle goat pony fish".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
TOPICS = (
    "black holes|the French Revolution|photosynthesis|the stock market|quantum physics|the Roman Empire|chess openings|"
    "climate change|tax law|the human heart|volcanoes|world trade|jazz|philosophy|economics|evolution|the internet|"
    "nuclear power|electric cars|the Middle Ages|opera|football|yoga|wine|diabetes|vaccines|bitcoin|glaciers|dinosaurs|"
    "the pyramids|poetry|architecture|gravity|machine learning|democracy|antibiotics|sailing|astronomy|astrology|baking|"
    "space travel|the brain|dolphins|cricket|basketball|the Olympics|Shakespeare|Mozart|robots|satellites|coral reefs|"
    "supply and demand|inflation|the ozone layer|earthquakes|tides|magnets|lasers|batteries|steam engines|printing|"
    "the plague|Vikings|samurai|cowboys|the moon landing|Einstein|Napoleon|Cleopatra|Darwin|Newton|cheese making|tigers"
).split("|")
TASKS = (
    "fix a leaking tap|lose weight|learn the guitar|invest my money|train a puppy|write a cover letter|plan a wedding|"
    "cook a turkey|build a shed|grow tomatoes|change a tyre|apply for a visa|paint a wall|clean an oven|sleep better|"
    "stop smoking|remove a stain|knit a scarf|file my taxes|buy a house|start a company|run a marathon|make sourdough|"
    "tie a tie|repair a bicycle|choose a laptop|learn French|write a novel|become a pilot|get a promotion|make soap|"
    "treat a burn|fold a shirt|sharpen a knife|brew beer|cut my own hair|pass an exam|raise chickens|prune roses|"
    "meditate|do a handstand|set up a router|speed up my computer|back up my phone|record a podcast|edit a video"
).split("|")
CODE_TASKS = (
    "sorts a list|parses a date|reads a file|downloads a page|draws a chart|solves a maze|plays chess|reverses a tree|"
    "checks a password|counts words|resizes an image|sends an email|validates a form|merges two files|finds duplicates|"
    "computes prime numbers|opens a socket|queries a database|encrypts a message|compresses a folder"
).split("|")
LANGUAGES = "Python|Rust|Go|Java|JavaScript|TypeScript|C|C++|SQL|Bash|Ruby|Kotlin|Swift|Haskell|PHP".split(
    "|"
)

COMMON = (
    "about action active after again against airport amount animal answer anything apartment article artist autumn "
    "balance battle because beginning belong between beyond bottle bottom bridge brother builder butter calendar camera "
    "candle capital captain castle century chance change chapter charge cheese children choice circle clever climb "
    "coffee colour common compare complete connect consider control corner country couple course create credit crowd "
    "culture current custom danger daughter decide degree delivery describe design desire detail develop dictionary "
    "difference dinner direct discover distance district doctor double dozen dress drink during early earth eight "
    "either electric element empty energy enough entire equal escape especially even evening example except exercise "
    "expect explain express family famous father favour figure finger finish flight follow foreign forget fortune "
    "forward fourth freedom fresh friend function future general gentle government great ground growth happen health "
    "heavy history holiday hospital hundred husband imagine include increase industry inside interest invention island "
    "jacket journey jungle justice kitchen knowledge language laughter leader learn leather lecture level library "
    "machine magic manager market matter measure medicine member memory message middle million minute mixture modern "
    "moment mother mountain music narrow nation nature necessary neighbour never nothing notice number object ocean "
    "office often opinion orange order ordinary original other outside owner package painter paper parent particular "
    "passenger patient pattern people perfect perhaps period person picture planet plastic pleasure pocket police "
    "popular position possible practice prepare present pressure problem process produce promise proper protect public "
    "purpose quality quarter question quick quiet reason receive record region remember remove repeat report require "
    "rescue result return reward science season second secret separate serious service seven shadow shoulder silence "
    "simple sister situation soldier special spring square stamp station steady straight strange stream street strength "
    "struggle student subject success sudden sugar summer supply support surface surprise system teacher temperature "
    "theatre thirteen thousand through thunder together tomorrow tongue toward traffic travel treasure trouble twelve "
    "twenty umbrella under union unless useful usually valley value various vegetable victory village visitor voice "
    "volume wander warning watch water weather welcome western whether whisper whole window winter within without wonder "
    "worker world writing yellow yesterday young zero"
).split()

# Capitalised, these are often one token of their own; as a name they have to be copied like any other.
SENTENCE_STARTS = (
    "nice good hello call play put tell what which when where who how why can could please thanks great sorry happy "
    "sunday monday friday april may june august open close start stop check update print read delete book order find "
    "run add set make take write give get show name yes no not now next here there this that they she he your my the"
).split()


def plain_words() -> list[str]:
    """Every ordinary word of the lists, lower case: no names of people or cities."""
    lists = (NOUNS, ADJECTIVES, COLOURS, FOODS, JOBS, ANIMALS, TOPICS, TASKS, CODE_TASKS, COMMON)
    found = {word for entries in lists for word in re.findall("[a-z]{3,}", " ".join(entries).lower())}
    return sorted(found)
