"""A Flower app in two lines: everything else is in the node configs and the run config."""

from otmoe.federation.flower.app import client_app, server_app

client = client_app()
server = server_app()
