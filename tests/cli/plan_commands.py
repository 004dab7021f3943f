"""What the tests of automap-search's commands share whose answer is a plan of a kind of its own."""

import json

from programs import SOURCE, ProgramTest, run

try:
    import jsonschema
except ImportError:
    jsonschema = None

SCHEMA = json.loads((SOURCE / "docs/formats/plan.schema.json").read_text())
INSPECT_SCHEMA = json.loads((SOURCE / "docs/formats/inspect.schema.json").read_text())


class PlanCommandTest(ProgramTest):
    command = ""

    def check(self, document, schema=SCHEMA):
        if jsonschema is not None:
            jsonschema.Draft202012Validator(schema).validate(document)
        return document

    def plan(self, *arguments):
        result = run("automap-search", self.command, *arguments, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        return self.check(json.loads(result.stdout))

    def fails(self, code, *arguments, says=()):
        self.assert_fails(run("automap-search", self.command, *arguments), code, *says)
