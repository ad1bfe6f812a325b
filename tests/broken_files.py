"""Problem files with one thing wrong each: in which line, what is said of it, and what to do."""

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

GOOD = {"yaml": YAML, "toml": TOML, "json": JSON}


class Broken(NamedTuple):
    """A change of a valid file; the line (None where TOML has none) and parts of the message."""

    what: str
    form: str
    old: str
    new: str
    line: int | None
    said: str
    remedy: str

    @property
    def content(self) -> str:
        """The file as it would be met."""
        good = GOOD[self.form]
        assert good.count(self.old) == 1, self
        return good.replace(self.old, self.new)


WRITING = [
    Broken("tab", "yaml", "  usd: US", "\tusd: US", 3, "'\\t'", "spaces, not with tabs"),
    Broken("no bracket", "yaml", "[cat, ann]", "[cat, ann", 14, "line 13", "brackets"),
    Broken("no quote", "yaml", "- name: cat", "- name: 'cat", 8, "quoted", "check quotes"),
    Broken(
        "colon", "yaml", "gpu: seconds", "gpu: seconds: 3", 4, "not valid YAML", "a colon in quotes"
    ),
    Broken("odd sign", "yaml", "gpu: seconds", "gpu: @home", 4, "'@'", "in quotes"),
    Broken("indent", "yaml", "    usd: 1.0", "     usd: 1.0", 10, "not valid YAML", "indentation"),
    Broken("alias", "yaml", "gpu: seconds", "gpu: *usd", 4, "*usd", "write out what"),
    Broken("anchor", "yaml", "gpu: seconds", "gpu: &x seconds", 4, "&x", "write out what repeats"),
    Broken("tag", "yaml", "draws: 2", "draws: !!python/name:os.system 2", 1, "tag", "remove it"),
    Broken("twice", "yaml", "  gpu: seconds", "  usd: seconds", 4, "also in line 3", "keep one"),
    Broken("twice, flow", "yaml", "gpu: 2}", "gpu: 2, usd: 5}", 6, "'usd'", "keep one"),
    Broken("key no", "yaml", "pain: 3", "no: 3", 20, "'no' (true or false)", "in quotes"),
    Broken("key list", "yaml", "pain: 3", "[a]: 3", 20, "a list", "quotes"),
    Broken(
        "two", "yaml", "period: 500", "---\nperiod: 500", 22, "second YAML document", "one problem"
    ),
    Broken(
        "escape",
        "yaml",
        "gpu: seconds",
        r'gpu: "\UFFFFFFFF"',
        4,
        "not valid YAML",
        "characters themselves",
    ),
    Broken("not valid TOML", "toml", "draws = 2", "draws: 2", 2, "not valid TOML", "check"),
    Broken("twice", "toml", "period = 500", "draws = 500", 3, "overwrite", "keep one"),
    Broken("table twice", "toml", "[groups]", "[costs]", 36, "twice", "keep one"),
    Broken(
        "open list", "toml", "at_most = 0.9\n", "at_most = [0.9", None, "not valid TOML", "brackets"
    ),
    Broken("digits", "toml", "500", "5" * 5000, None, "too many digits", "fewer"),
    Broken("comma", "json", '"seconds"}', '"seconds",}', 4, "not valid JSON", "commas"),
    Broken("twice", "json", '"period": 500', '"draws": 500', 2, "also in line 2", "keep one"),
    Broken("comment", "json", '"rewards"', '# "rewards"', 18, "not valid JSON", "no comments"),
]

KINDS = [
    Broken(
        "name no",
        "yaml",
        "name: cat",
        "name: no",
        8,
        "true or false",
        'in quotes if it is a name: "no"',
    ),
    Broken("name 12", "yaml", "name: cat", "name: 12", 8, "a number", 'name: "12"'),
    Broken("name 1:30", "yaml", "name: cat", "name: 1:30", 8, "to some programs", '"1:30"'),
    Broken("name null", "yaml", "name: cat", "name: ~", 8, "'~' (nothing)", "a name"),
    Broken("blank name", "yaml", "name: cat", "name: ' cat'", 8, "' cat'", "without spaces"),
    Broken("no name", "yaml", "name: cat", "name: ''", 8, "name ''", "printable"),
    Broken("number as text", "yaml", "usd: 1.0", 'usd: "1e3"', 10, "text", "remove the quotes"),
    Broken("octal", "yaml", "usd: 1.0", "usd: 010", 10, "to some programs", "a finite number"),
    Broken("comma", "yaml", "usd: 1.0", "usd: '1,5'", 10, "text", "write 1.5"),
    Broken("percent", "yaml", "0.25,", "25%,", 16, "text", "0.25 for 25%"),
    Broken("infinite", "yaml", "usd: 1.0", "usd: .inf", 10, "usd .inf", "a finite number"),
    Broken("too large", "yaml", "usd: 1.0", "usd: 1e999", 10, "usd 1e999", "a finite number"),
    Broken("nan", "yaml", "usd: 1.0", "usd: .nan", 10, "usd .nan", "a finite number"),
    Broken("negative", "yaml", "usd: 1.0", "usd: -1", 10, "usd -1", "of 0 or more"),
    Broken("huge", "yaml", "usd: 1.0", "usd: 1e200", 10, "1e+200", "another unit"),
    Broken("no value", "yaml", "usd: 1.0", "usd:", 10, "nothing", "a finite number"),
    Broken("truth", "yaml", "usd: 1.0", "usd: yes", 10, "true or false", "a finite number"),
    Broken("half a draw", "yaml", "draws: 2 ", "draws: 2.5 ", 1, "2.5", "a whole number"),
    Broken("no draws", "yaml", "draws: 2 ", "draws: 0 ", 1, "draws 0", "from 1 to 10,000"),
    Broken("date", "toml", "draws = 2", "draws = 2026-01-01", None, "a date", "a whole number"),
    Broken("nan", "toml", "usd = 4.0", "usd = nan", None, "usd nan", "a finite number"),
    Broken("nan", "json", '"usd": 4.0', '"usd": NaN', 6, "usd NaN", "a finite number"),
    Broken("in a list", "toml", '"night",', "7,", None, "a number", 'name: "7"'),
    Broken("in a list", "json", '"night"]', "7]", 8, "a number", 'name: "7"'),
    Broken("mapping", "yaml", "[cat, ann]", "{cat: 1}", 13, "unknown key 'cat'", "column"),
    Broken("list", "yaml", "draws: 2 ", "draws: [2] ", 1, "a list", "a whole number"),
]

MEANING = [
    Broken("unknown key", "yaml", "period: 500", "perod: 500", 22, "'perod'", "'period'"),
    Broken("unknown key", "toml", "period = 500", "perod = 500", None, "'perod'", "'period'"),
    Broken("unknown key", "json", '"rewards"', '"reward"', 18, "'reward'", "'rewards'"),
    Broken("key of a limit", "yaml", "at_most: 0.9", "max: 0.9", 19, "'max'", "at_most"),
    Broken("no draws", "yaml", "draws: 2", "#", 2, "missing key 'draws'", "how many experts"),
    Broken("same expert", "yaml", "name: cat", "name: ann", 8, "line 6", "rename one"),
    Broken("same expert", "toml", '"cat"\ng', '"ann"\ng', None, "experts[0]", "rename one"),
    Broken("same expert", "json", '"name": "cat"', '"name": "ann"', 9, "line 6", "rename one"),
    Broken("cost missing", "yaml", "    usd: 1.0\n", "", 8, "'cat' has no cost 'usd'", "0 if"),
    Broken("cost missing", "toml", "usd = 1.0\n", "", None, "'cat' has no cost 'usd'", "0 if"),
    Broken("cost missing", "json", '"usd": 4.0, ', "", 6, "'ann' has no cost 'usd'", "0 if"),
    Broken("strange cost", "yaml", "usd: 1.0", "usb: 1.0", 10, "'usb'", "mean 'usd'"),
    Broken("cost called group", "yaml", "  gpu: sec", "  group: sec", 4, "'group'", "another name"),
    Broken("no such cost", "yaml", "cost: usd,", "cost: used,", 15, "'used'", "mean 'usd'"),
    Broken("no such group", "yaml", "group: junior,", "group: minor,", 16, "'minor'", "the groups"),
    Broken(
        "no such group", "toml", '"junior"\nat', '"junor"\nat', None, "'junor'", "mean 'junior'"
    ),
    Broken("no such group", "json", '"night", "per', '"nigt", "per', 15, "'nigt'", "'night'"),
    Broken(
        "a group", "yaml", "cost: usd,", "cost: junior,", 15, "unknown cost", "write group: junior"
    ),
    Broken("neither", "yaml", "cost: usd, ", "", 15, "neither cost nor group", "add one"),
    Broken(
        "both",
        "yaml",
        "cost: usd,",
        "cost: usd, group: night,",
        15,
        "both cost and group",
        "keep one",
    ),
    Broken(
        "no bound", "yaml", ", at_least: 0.25", "", 16, "neither at_most nor at_least", "add one"
    ),
    Broken(
        "no unit", "yaml", "    per: request\n", "", 17, "missing key 'per'", "divided by draws"
    ),
    Broken("other unit", "yaml", "per: draw", "per: month", 16, "'month'", "request or draw"),
    Broken("4 for 4%", "yaml", "0.25,", "25,", 16, "a share of the draws", "0.04 for 4%"),
    Broken("same side", "yaml", "- group: night", "- cost: usd", 19, "(line 15)", "tighter"),
    Broken("two bounds", "yaml", "at_least: 0.1,", "at_least: 5,", 15, "(line 15)", "swap"),
    Broken("unknown member", "yaml", "[cat, ann]", "[cat, an]", 13, "'an'", "mean 'ann'"),
    Broken("member twice", "yaml", "[cat, ann]", "[cat, cat]", 13, "'cat' twice", "once"),
    Broken("group twice", "yaml", "[senior, night]", "[night, night]", 7, "'night' twice", "once"),
    Broken("known group", "yaml", "early:", "senior:", 13, "line 6", "rename one"),
    Broken("cost and group", "yaml", "early:", "usd:", 13, "a cost and a group", "rename one"),
    Broken("column", "yaml", "[cat, ann]", "{column: x, at_least: 1}", 13, "CSV", "list its"),
    Broken("floor", "yaml", "floor: 0.05", "floor: 0.4", 23, "invalid floor", "at most 1/3"),
    Broken("weight", "yaml", "pain: 3", "pain: 0", 20, "contexts.pain 0", "above 0"),
    Broken("context twice", "yaml", "{pain: 3, headache: 1}", "[a, b, a]", 20, "'a'", "once"),
    Broken("rewards", "yaml", "to: 10", "to: 0", 21, "from less than to", "lower end first"),
    Broken("huge rewards", "yaml", "to: 10", "to: 1e299", 21, "at most 1e+100", "another unit"),
    Broken(
        "one expert", "json", '"experts": [', '"experts": [], "x": [', 5, "0 entries", "at least 2"
    ),
]

BROKEN = [*WRITING, *KINDS, *MEANING]
