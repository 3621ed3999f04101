"""A Flower app in two lines: the node configs and the run config say the rest."""

from otmoe.integrations.flower import client_app, server_app

client = client_app()
server = server_app()
