from tests.support.servers.fronts import client as client
