"""A Flower app in two lines: the node configs and the run config say the rest."""

from otmoe.federation.flower.app import client_app, server_app

client = client_app()
server = server_app()
