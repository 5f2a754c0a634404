from tests.support.fronts import client as client
