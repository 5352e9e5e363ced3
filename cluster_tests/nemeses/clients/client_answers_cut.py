"""A member gets all that clients say, and its answers do not come: what it stored they cannot know."""

from nemeses.clients.client_link_cut import ClientLinkCut
from nemeses.clients.client_link_nemesis import client_link_spec


class ClientAnswersCut(ClientLinkCut):
    spec = client_link_spec("client_answers_cut", (2_000, 6_000))
    way = "downstream"
