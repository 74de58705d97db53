"""Tasks for rows of several lengths, in the deployment of this folder."""
