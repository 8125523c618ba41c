"""Runs uses in several ways, each of which must come to the same: as it stands, with shapes that the model does not tell, with
all inputs constant; and under several configurations."""
from drive import Driver

WAYS = {"": {}, " unshaped": {"shapes": False}, " folded": {"folded": True}}


class Suite:
    def __init__(self, program, plugins, configurations=None):
        """`configurations`: {name: [key=value]}"""
        self.drivers = {name: Driver(program, plugins, sets) for name, sets in (configurations or {"": []}).items()}
        self.wrong, self.uses, self.runs = [], 0, 0

    def check(self, topic, use):
        self.uses += 1
        first, label = None, f"{topic}: {use.op}-{use.version} {use.note} {use.attributes or ''}"
        for configuration, driver in self.drivers.items():
            for way, options in WAYS.items():
                if way == " folded" and (not use.inputs or any(isinstance(v, list) for v in use.inputs)):
                    continue
                self.runs += 1
                where = f"{label}{way} {configuration}"
                problem = use.problem(driver, **options)
                if problem:
                    self.wrong.append(f"{where}: {problem}")
                    continue
                # The same results to the last bit; where it is refused, a refusal.
                code, _, found = use.found
                answer = found if code == 0 else "refused"
                if first is None:
                    first = where, answer
                elif answer != first[1] and not use.loose:
                    self.wrong.append(f"{where}: gives another result than{first[0][len(label):] or ' executed'}")

    def finish(self):
        for driver in self.drivers.values():
            driver.close()
        for line in self.wrong:
            print(line[:1200])
        print(f"{self.uses} uses, {self.runs} runs, {len(self.wrong)} wrong")
        return 1 if self.wrong else 0
