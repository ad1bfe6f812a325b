"""Problem files with one mistake each: its line, the error message and the remedy."""

from typing import NamedTuple

YAML = """\
draws: 2  # experts drawn for each request
costs:
  usd: US dollars per consultation
  gpu: seconds
experts:
  - {name: ann, group: senior, usd: 4.0, gpu: 2}
  - {name: bob, group: [senior, night], usd: 3.0, gpu: 0}
  - name: cat
    group: junior
    usd: 1.0
    gpu: 1
groups:
  early: [cat, ann]
limits:
  - {cost: usd, at_most: 4.5, at_least: 0.1, per: request}
  - {group: junior, at_least: 0.25, per: draw}
  - group: night
    per: request
    at_most: 0.9
contexts: {pain: 3, headache: 1}
rewards: {from: 0, to: 10}
period: 500
floor: 0.05
"""

TOML = """\
# the same in TOML
draws = 2
period = 500
floor = 0.05
contexts = { pain = 3, headache = 1 }

[rewards]
from = 0
to = 10

[costs]
usd = "US dollars per consultation"
gpu = "seconds"

[[experts]]
name = "ann"
group = "senior"
usd = 4.0
gpu = 2

[[experts]]
name = "bob"
group = [
  "senior",   # two groups
  "night",
]
usd = 3.0
gpu = 0

[[experts]]
name = "cat"
group = "junior"
usd = 1.0
gpu = 1

[groups]
early = ["cat", "ann"]

[[limits]]
cost = "usd"
at_most = 4.5
at_least = 0.1
per = "request"

[[limits]]
group = "junior"
at_least = 0.25
per = "draw"

[[limits]]
group = "night"
per = "request"
at_most = 0.9
"""

JSON = """\
{
  "draws": 2, "period": 500, "floor": 5e-2,
  "costs": {"usd": "US dollars per consultation",
            "gpu": "seconds"},
  "experts": [
    {"name": "ann", "group": "senior", "usd": 4.0, "gpu": 2},
    {"name": "bob", "group": ["senior",
                              "night"], "usd": 3.0, "gpu": 0},
\t{"name": "cat", "group": "junior", "usd": 1.0, "gpu": 1}
  ],
  "groups": {"early": ["cat", "ann"]},
  "limits": [
    {"cost": "usd", "at_most": 4.5, "at_least": 0.1, "per": "request"},
    {"group": "junior", "at_least": 0.25, "per": "draw"},
    {"group": "night", "per": "request", "at_most": 0.9}
  ],
  "contexts": {"pain": 3, "headache": 1},
  "rewards": {"from": 0, "to": 10}
}
"""

VALID_FILES = {"yaml": YAML, "toml": TOML, "json": JSON}


class BrokenFile(NamedTuple):
    """A change of a valid file; the line (None where TOML has none) and parts of the message."""

    what: str
    form: str
    old: str
    new: str
    line: int | None
    message: str
    remedy: str

    @property
    def content(self) -> str:
        """The content of the broken file."""
        valid = VALID_FILES[self.form]
        assert valid.count(self.old) == 1, self
        return valid.replace(self.old, self.new)


SYNTAX_ERRORS = [
    BrokenFile("tab", "yaml", "  usd: US", "\tusd: US", 3, "'\\t'", "spaces, not with tabs"),
    BrokenFile("no bracket", "yaml", "[cat, ann]", "[cat, ann", 14, "line 13", "brackets"),
    BrokenFile("no quote", "yaml", "- name: cat", "- name: 'cat", 8, "quoted", "check quotes"),
    BrokenFile(
        "colon", "yaml", "gpu: seconds", "gpu: seconds: 3", 4, "not valid YAML", "a colon in quotes"
    ),
    BrokenFile("odd sign", "yaml", "gpu: seconds", "gpu: @home", 4, "'@'", "in quotes"),
    BrokenFile(
        "indent", "yaml", "    usd: 1.0", "     usd: 1.0", 10, "not valid YAML", "indentation"
    ),
    BrokenFile("alias", "yaml", "gpu: seconds", "gpu: *usd", 4, "*usd", "write out what"),
    BrokenFile(
        "anchor", "yaml", "gpu: seconds", "gpu: &x seconds", 4, "&x", "write out what repeats"
    ),
    BrokenFile(
        "tag", "yaml", "draws: 2", "draws: !!python/name:os.system 2", 1, "tag", "remove it"
    ),
    BrokenFile(
        "twice", "yaml", "  gpu: seconds", "  usd: seconds", 4, "also in line 3", "keep one"
    ),
    BrokenFile("twice, flow", "yaml", "gpu: 2}", "gpu: 2, usd: 5}", 6, "'usd'", "keep one"),
    BrokenFile("key no", "yaml", "pain: 3", "no: 3", 20, "'no' (true or false)", "in quotes"),
    BrokenFile("key list", "yaml", "pain: 3", "[a]: 3", 20, "a list", "quotes"),
    BrokenFile(
        "two", "yaml", "period: 500", "---\nperiod: 500", 22, "second YAML document", "one problem"
    ),
    BrokenFile(
        "escape",
        "yaml",
        "gpu: seconds",
        r'gpu: "\UFFFFFFFF"',
        4,
        "not valid YAML",
        "characters themselves",
    ),
    BrokenFile("not valid TOML", "toml", "draws = 2", "draws: 2", 2, "not valid TOML", "check"),
    BrokenFile("twice", "toml", "period = 500", "draws = 500", 3, "overwrite", "keep one"),
    BrokenFile("table twice", "toml", "[groups]", "[costs]", 36, "twice", "keep one"),
    BrokenFile(
        "open list", "toml", "at_most = 0.9\n", "at_most = [0.9", None, "not valid TOML", "brackets"
    ),
    BrokenFile("digits", "toml", "500", "5" * 5000, None, "too many digits", "fewer"),
    BrokenFile("comma", "json", '"seconds"}', '"seconds",}', 4, "not valid JSON", "commas"),
    BrokenFile("twice", "json", '"period": 500', '"draws": 500', 2, "also in line 2", "keep one"),
    BrokenFile("comment", "json", '"rewards"', '# "rewards"', 18, "not valid JSON", "no comments"),
]

TYPE_ERRORS = [
    BrokenFile(
        "name no",
        "yaml",
        "name: cat",
        "name: no",
        8,
        "true or false",
        'in quotes if it is a name: "no"',
    ),
    BrokenFile("name 12", "yaml", "name: cat", "name: 12", 8, "a number", 'name: "12"'),
    BrokenFile("name 1:30", "yaml", "name: cat", "name: 1:30", 8, "to some programs", '"1:30"'),
    BrokenFile("name null", "yaml", "name: cat", "name: ~", 8, "'~' (nothing)", "a name"),
    BrokenFile("blank name", "yaml", "name: cat", "name: ' cat'", 8, "' cat'", "without spaces"),
    BrokenFile("no name", "yaml", "name: cat", "name: ''", 8, "name ''", "printable"),
    BrokenFile("number as text", "yaml", "usd: 1.0", 'usd: "1e3"', 10, "text", "remove the quotes"),
    BrokenFile("octal", "yaml", "usd: 1.0", "usd: 010", 10, "to some programs", "a finite number"),
    BrokenFile("comma", "yaml", "usd: 1.0", "usd: '1,5'", 10, "text", "write 1.5"),
    BrokenFile("percent", "yaml", "0.25,", "25%,", 16, "text", "0.25 for 25%"),
    BrokenFile("infinite", "yaml", "usd: 1.0", "usd: .inf", 10, "usd .inf", "a finite number"),
    BrokenFile("too large", "yaml", "usd: 1.0", "usd: 1e999", 10, "usd 1e999", "a finite number"),
    BrokenFile("nan", "yaml", "usd: 1.0", "usd: .nan", 10, "usd .nan", "a finite number"),
    BrokenFile("negative", "yaml", "usd: 1.0", "usd: -1", 10, "usd -1", "of 0 or more"),
    BrokenFile("huge", "yaml", "usd: 1.0", "usd: 1e200", 10, "1e+200", "another unit"),
    BrokenFile("no value", "yaml", "usd: 1.0", "usd:", 10, "nothing", "a finite number"),
    BrokenFile("truth", "yaml", "usd: 1.0", "usd: yes", 10, "true or false", "a finite number"),
    BrokenFile("half a draw", "yaml", "draws: 2 ", "draws: 2.5 ", 1, "2.5", "a whole number"),
    BrokenFile("no draws", "yaml", "draws: 2 ", "draws: 0 ", 1, "draws 0", "from 1 to 10,000"),
    BrokenFile("date", "toml", "draws = 2", "draws = 2026-01-01", None, "a date", "a whole number"),
    BrokenFile("nan", "toml", "usd = 4.0", "usd = nan", None, "usd nan", "a finite number"),
    BrokenFile("nan", "json", '"usd": 4.0', '"usd": NaN', 6, "usd NaN", "a finite number"),
    BrokenFile("in a list", "toml", '"night",', "7,", None, "a number", 'name: "7"'),
    BrokenFile("in a list", "json", '"night"]', "7]", 8, "a number", 'name: "7"'),
    BrokenFile("mapping", "yaml", "[cat, ann]", "{cat: 1}", 13, "unknown key 'cat'", "column"),
    BrokenFile("list", "yaml", "draws: 2 ", "draws: [2] ", 1, "a list", "a whole number"),
]

SEMANTIC_ERRORS = [
    BrokenFile("unknown key", "yaml", "period: 500", "perod: 500", 22, "'perod'", "'period'"),
    BrokenFile("unknown key", "toml", "period = 500", "perod = 500", None, "'perod'", "'period'"),
    BrokenFile("unknown key", "json", '"rewards"', '"reward"', 18, "'reward'", "'rewards'"),
    BrokenFile("key of a limit", "yaml", "at_most: 0.9", "max: 0.9", 19, "'max'", "at_most"),
    BrokenFile("no draws", "yaml", "draws: 2", "#", 2, "missing key 'draws'", "how many experts"),
    BrokenFile("same expert", "yaml", "name: cat", "name: ann", 8, "line 6", "rename one"),
    BrokenFile("same expert", "toml", '"cat"\ng', '"ann"\ng', None, "experts[0]", "rename one"),
    BrokenFile("same expert", "json", '"name": "cat"', '"name": "ann"', 9, "line 6", "rename one"),
    BrokenFile("cost missing", "yaml", "    usd: 1.0\n", "", 8, "'cat' has no cost 'usd'", "0 if"),
    BrokenFile("cost missing", "toml", "usd = 1.0\n", "", None, "'cat' has no cost 'usd'", "0 if"),
    BrokenFile("cost missing", "json", '"usd": 4.0, ', "", 6, "'ann' has no cost 'usd'", "0 if"),
    BrokenFile("strange cost", "yaml", "usd: 1.0", "usb: 1.0", 10, "'usb'", "mean 'usd'"),
    BrokenFile(
        "cost called group", "yaml", "  gpu: sec", "  group: sec", 4, "'group'", "another name"
    ),
    BrokenFile("no such cost", "yaml", "cost: usd,", "cost: used,", 15, "'used'", "mean 'usd'"),
    BrokenFile(
        "no such group", "yaml", "group: junior,", "group: minor,", 16, "'minor'", "the groups"
    ),
    BrokenFile(
        "no such group", "toml", '"junior"\nat', '"junor"\nat', None, "'junor'", "mean 'junior'"
    ),
    BrokenFile("no such group", "json", '"night", "per', '"nigt", "per', 15, "'nigt'", "'night'"),
    BrokenFile(
        "a group", "yaml", "cost: usd,", "cost: junior,", 15, "unknown cost", "write share: junior"
    ),
    BrokenFile("neither", "yaml", "cost: usd, ", "", 15, "neither cost nor share", "add one"),
    BrokenFile(
        "both",
        "yaml",
        "cost: usd,",
        "cost: usd, group: night,",
        15,
        "both cost and group",
        "keep one",
    ),
    BrokenFile(
        "no bound", "yaml", ", at_least: 0.25", "", 16, "neither at_most nor at_least", "add one"
    ),
    BrokenFile("other unit", "yaml", "per: draw", "per: year", 16, "'year'", "request or draw"),
    BrokenFile("other unit", "yaml", "per: draw", "per: mouth", 16, "'mouth'", "mean 'month'"),
    BrokenFile(
        "key of a limit", "yaml", "per: draw", "per: day, zon: UTC", 16, "'zon'", "mean 'zone'"
    ),
    BrokenFile(
        "zone",
        "yaml",
        "per: draw",
        "per: day, zone: Europe/Berlni",
        16,
        "time zone 'Europe/Berlni'",
        "mean 'Europe/Berlin'",
    ),
    BrokenFile("zone", "toml", 'per = "draw"', 'per = "day"\nzone = ""', None, "zone ''", "IANA"),
    BrokenFile("no window", "yaml", "per: draw", "zone: UTC", 16, "zone without per", "add per"),
    BrokenFile(
        "no window", "yaml", "per: draw", "per: draw, zone: UTC", 16, "is per draw", "per: day"
    ),
    BrokenFile(
        "no window",
        "json",
        '"per": "draw"',
        '"per": "request", "when_spent": "fewer"',
        14,
        "is per request",
        "leave when_spent out",
    ),
    BrokenFile(
        "when spent",
        "yaml",
        "at_least: 0.1, per: request",
        "per: day, when_spent: refused",
        15,
        "'refused'",
        "mean 'refuse'",
    ),
    BrokenFile(
        "other scope", "yaml", "per: draw", "per: day, scope: tennant", 16, "scope", "mean 'tenant'"
    ),
    BrokenFile(
        "scope without a window",
        "yaml",
        "per: draw",
        "scope: tenant",
        16,
        "scope needs a window",
        "write per: month",
    ),
    BrokenFile(
        "no context",
        "yaml",
        "per: draw",
        "where: {context: []}",
        16,
        "where.context (0 entries)",
        "at least 1",
    ),
    BrokenFile(
        "no context",
        "json",
        '"per": "draw"',
        '"where": {}',
        14,
        "missing key 'context'",
        "add context",
    ),
    BrokenFile(
        "key of where",
        "toml",
        'per = "draw"',
        'where = {contxt = ["icu"]}',
        None,
        "'contxt' in limits",
        "mean 'context'",
    ),
    BrokenFile(
        "unknown context",
        "yaml",
        "per: draw",
        "where: {context: [pian]}",
        16,
        "unknown context 'pian'",
        "mean 'pain'",
    ),
    BrokenFile(
        "context twice",
        "yaml",
        "per: draw",
        "where: {context: [pain, pain]}",
        16,
        "'pain' is named twice",
        "name each context once",
    ),
    BrokenFile(
        "spent share",
        "yaml",
        "per: draw",
        "per: week, when_spent: refuse",
        16,
        "never spent",
        "leave it out",
    ),
    BrokenFile(
        "minimum of a day",
        "yaml",
        "0.1, per: request",
        "0.1, per: day",
        15,
        "cannot be promised",
        "at_least: 0.1, per: day}",
    ),
    BrokenFile("traffic", "yaml", "period: 500", "traffic: 0", 22, "traffic 0", "from 0.001 to"),
    BrokenFile("traffic", "yaml", "period: 500", "trafic: 9", 22, "'trafic'", "mean 'traffic'"),
    BrokenFile("4 for 4%", "yaml", "0.25,", "25,", 16, "a share of the draws", "0.04 for 4%"),
    BrokenFile("same side", "yaml", "- group: night", "- cost: usd", 19, "(line 15)", "tighter"),
    BrokenFile("two bounds", "yaml", "at_least: 0.1,", "at_least: 5,", 15, "(line 15)", "swap"),
    BrokenFile("unknown member", "yaml", "[cat, ann]", "[cat, an]", 13, "'an'", "mean 'ann'"),
    BrokenFile("member twice", "yaml", "[cat, ann]", "[cat, cat]", 13, "'cat' twice", "once"),
    BrokenFile(
        "group twice", "yaml", "[senior, night]", "[night, night]", 7, "'night' twice", "once"
    ),
    BrokenFile("known group", "yaml", "early:", "senior:", 13, "line 6", "rename one"),
    BrokenFile("cost and group", "yaml", "early:", "usd:", 13, "a cost and a group", "rename one"),
    BrokenFile("column", "yaml", "[cat, ann]", "{column: x, at_least: 1}", 13, "CSV", "list its"),
    BrokenFile("floor", "yaml", "floor: 0.05", "floor: 0.4", 23, "invalid floor", "at most 1/3"),
    BrokenFile("weight", "yaml", "pain: 3", "pain: 0", 20, "contexts.pain 0", "above 0"),
    BrokenFile("context twice", "yaml", "{pain: 3, headache: 1}", "[a, b, a]", 20, "'a'", "once"),
    BrokenFile("rewards", "yaml", "to: 10", "to: 0", 21, "a lower and a higher", "lower end first"),
    BrokenFile("huge rewards", "yaml", "to: 10", "to: 1e299", 21, "at most 1e+100", "another unit"),
    BrokenFile(
        "one expert", "json", '"experts": [', '"experts": [], "x": [', 5, "0 entries", "at least 2"
    ),
]

BROKEN = [*SYNTAX_ERRORS, *TYPE_ERRORS, *SEMANTIC_ERRORS]
